"""An institution's side of what it asks the hub: outgoing HTTPS only, with its signing key as the one credential.

`https` opens connections through proxies, `failures` says why they fail, `client` makes the requests, `mirror` what
follows from the answers, `reports` what is said of each agent and when, and `poller` does all of that while a
process lives.
"""
