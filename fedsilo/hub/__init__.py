"""An institution's side of what it asks the hub: outgoing HTTPS only, with its signing key as the one credential."""
