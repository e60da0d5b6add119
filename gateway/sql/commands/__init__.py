"""Statements that are no queries: what they are; parsing/ has how they are read. START HERE: commands.py."""
