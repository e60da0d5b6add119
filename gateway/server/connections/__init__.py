"""How connections are taken: ports, the loop that waits for them, and how HTTP is read. START HERE: protocol.py."""
