"""Rules in place of the mean of the silos' models, of which a few may be anything."""
