"""Several processes that serve one home folder: the supervisor, which restarts them, and their arguments.

START HERE: supervisor.py.
"""
