"""Spark's meaning in Sail's words, and what has none there. START HERE: rules.py."""
