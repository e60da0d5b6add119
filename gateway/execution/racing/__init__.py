"""Attempts of one query that may run at the same time. START HERE: race.py."""
