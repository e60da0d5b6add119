"""Parsers of the three dialects over the library's, with functions as they were written. START HERE: dialects.py."""
