"""Sail: DataFusion behind Spark Connect, as a fast engine without spilling or as a dependable one with it.

START HERE: engine.py, over servers.py, the child processes.
"""
