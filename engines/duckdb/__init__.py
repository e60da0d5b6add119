"""DuckDB as the embedded fast engine: one query per worker process.

START HERE: pool.py, the engine; ``worker.py`` is the other end, with the instances of ``instance.py``.
"""
