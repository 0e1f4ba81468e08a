"""A consortium per test."""

from tests.integration.institution.hub import consortium

__all__ = ["consortium"]
