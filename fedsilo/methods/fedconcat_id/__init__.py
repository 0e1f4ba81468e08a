"""FedConcat-ID is FedConcat whose label distributions are inferred from the silos' models, so that none is disclosed.

Diao, Li, He, AAAI 2024, "FedConcat-ID": after one round on the common initial model, the aggregator shows random
inputs to every silo's model; the mean of its answers stands in for the silo's label distribution.

`variant: released` keeps the models of round 1.
"""

from fedsilo.methods.fedconcat_id.declaration import FedConcatID

__all__ = ["FedConcatID"]
