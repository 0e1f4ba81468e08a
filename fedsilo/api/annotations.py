"""Annotations of a Silo with which the institution asks for something that only its silo controller can do."""

LEAVE = "fedsilo.io/leave"
"""The institution leaves its hub, whatever the value, as long as it is there."""

ROTATE_KEY = "fedsilo.io/rotate-key"
"""Another signing key is wanted; the value is the id of the key to replace, so that nothing is done twice."""
