"""DuckDB as the embedded fast engine: one query per worker process.

START HERE: engine.py, over worker processes; ``worker/`` is their end. ``cost.py`` joins plans and ``memory/``.
"""
