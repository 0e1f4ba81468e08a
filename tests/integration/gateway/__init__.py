"""The gateway between silos and aggregators, over real connections."""
