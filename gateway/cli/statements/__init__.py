"""Statements that commands run, and what is printed of them. START HERE: running.py."""
