"""The Spark Connect server that the gateway starts itself: its start and end, its health, who runs beside whom on it.

START HERE: server.py.
"""
