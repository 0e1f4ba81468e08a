"""Documents of a stranger, and the commands that a person opens them with."""
