"""Statements on record: as they go on, as they ended, and so that another gateway can run them again.

START HERE: query_log.py.
"""
