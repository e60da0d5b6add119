"""Readers of engines' EXPLAIN texts: one module per engine, all return a ``Plan``."""
