"""Texts about a statement that pages, the command line and drivers share, and values/. START HERE: timeline.py."""
