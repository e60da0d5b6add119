"""What runs in a worker process: DuckDB itself, locked down, over views of the tables. START HERE: worker.py."""
