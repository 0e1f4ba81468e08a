"""Statistics of features tell what the silos' data are like together, without training a model.

Merged as Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979, say.
"""

from fedsilo.methods.statistics.declaration import Statistics

__all__ = ["Statistics"]
