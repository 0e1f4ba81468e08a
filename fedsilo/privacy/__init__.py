"""How much is revealed about one record, as mechanisms and the epsilon that they come to together."""
