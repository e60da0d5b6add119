"""Impala as the fast engine, over HiveServer2.

START HERE: engine.py.
"""
