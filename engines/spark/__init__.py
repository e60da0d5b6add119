"""Spark as the dependable engine, through Spark Connect: a remote server, or the one that ``embedded/`` keeps running.

START HERE: engine.py.
"""
