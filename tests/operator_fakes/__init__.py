"""A cluster in memory and time that passes at once: what tests of the operator run on."""
