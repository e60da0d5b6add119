"""DuckDB's memory: what the operators of its plans hold, pipeline by pipeline. START HERE: model.py."""
