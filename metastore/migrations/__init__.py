"""Alembic migrations: the only makers of tables."""
