"""Attacks on live processes, and by documents of a stranger: one program each, and what they cost.

    python -m attacks

runs all and writes docs/results/attacks.md; names run some of them and write nothing.
"""
