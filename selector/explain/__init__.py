"""Readers of engines' EXPLAIN texts: one module or package per engine, all return a ``Plan``.

START HERE: duckdb.py.
"""
