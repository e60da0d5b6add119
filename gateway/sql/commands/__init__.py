"""Statements that are no queries: what they are, and how they are read. START HERE: command_parsing.py."""
