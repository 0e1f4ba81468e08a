"""The best round's model, and an early end."""
