"""Kinds of object stores, a module each: how locations are written, and how each library reaches the store.

START HERE: kind.py, what every kind says of itself. A new kind is a module, and a line in ``../store.py`` and in
``../credentials.py``.
"""
