"""Rows that are read while their query still runs. START HERE: early_result.py."""
