"""Memory models: cardinalities -> bytes per operator -> a peak over time. One module per model.

START HERE: paper.py, the paper's; those of engines stand with their engines, over column_widths.py and pipeline.py.
"""
