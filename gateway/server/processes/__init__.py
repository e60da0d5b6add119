"""Several processes that serve one home folder: who starts them and starts them again, and what each is told.

START HERE: supervisor.py.
"""
