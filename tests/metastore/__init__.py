"""Tests of the metastore, on SQLite and on PostgreSQL."""
