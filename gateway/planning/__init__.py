"""Processes that read statements, so that none runs away or is in the way. START HERE: pool.py."""
