"""Alembic migrations: the only makers of tables.

START HERE: env.py.
"""
