"""Texts of statements that are no queries, read word by word. START HERE: command_parsing.py."""
