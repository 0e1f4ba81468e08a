"""Sums over silos of which nobody sees a single summand: the protocol, as functions of explicit state.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4 with all
that it underlines, so that the aggregator may be hostile: keys are announced under the silos' signing keys, and the
survivors' list is signed before anything is unmasked.
"""
