"""Statistics of tables: statements that compute, drop, set and show them. START HERE: computing.py."""
