"""Memory models: cardinalities -> bytes per operator -> a peak over time. One module per model.

START HERE: duckdb.py, over duckdb_pipelines.py (what runs without waiting) and schedule.py (what is alive together).
"""
