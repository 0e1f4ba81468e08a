"""Tests of the fault campaign's own parts."""
