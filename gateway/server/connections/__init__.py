"""Connections: ports, the event loop that accepts them, and the HTTP protocol. START HERE: protocol.py."""
