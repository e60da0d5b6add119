"""Protocols of other products' drivers. START HERE: operations.py, a statement that a client holds."""
