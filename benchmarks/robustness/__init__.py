"""What a few hostile silos do to a model, under each rule of `spec.aggregation.rule`."""
