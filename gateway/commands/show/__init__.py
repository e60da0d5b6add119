"""Statements that show tables, their files, functions and rights. START HERE: tables.py."""
