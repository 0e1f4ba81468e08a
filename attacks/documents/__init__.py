"""Attacks by documents of a stranger, on the commands that a person opens them with."""
