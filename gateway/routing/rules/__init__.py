"""Routing rules of the administrator. START HERE: rules.py, then matching.py.

A file is read by ``reading.py``, watched by ``rules_file.py``, and asked by the router at one place.
"""
