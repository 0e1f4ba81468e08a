"""A job's features between its method and the wire, one folder each; `order.py` lists them.

`transform` is their interface, and `guard` that of what they do in a guard; `plan` is what a job does by its
specification alone, `conflicts` what does not go together, and `third_party` holds what other packages offer.
"""
