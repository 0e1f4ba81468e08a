"""Bytes from outside, changed at random: a parser returns, or refuses with the project's own error, and nothing else.

`python -m tests.fuzz` is the campaign; `test_parsers.py` is a small part of it in the suite.
"""
