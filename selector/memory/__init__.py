"""Memory models: cardinalities -> bytes per operator -> a peak over time. One module per model."""
