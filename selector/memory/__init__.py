"""Memory models: cardinalities -> bytes per operator -> a peak over time. One module per model.

START HERE: pipeline.py, what of a plan is alive together.
"""
