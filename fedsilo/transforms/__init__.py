"""A job's features between its method and the wire, one folder each; `order.py` lists them."""
