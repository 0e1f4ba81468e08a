"""What an update says about the examples behind it, measured by attacks at the aggregator's view."""
