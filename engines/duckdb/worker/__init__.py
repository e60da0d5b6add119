"""Code of a worker process: DuckDB, locked down, over views of the tables. START HERE: worker.py."""
