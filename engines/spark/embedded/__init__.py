"""The Spark Connect server that the gateway itself starts: its process, its health, the gate for its statements.

START HERE: server.py.
"""
