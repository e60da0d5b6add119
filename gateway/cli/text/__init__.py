"""What commands print for people and for pipes, and the statements that they read. START HERE: layout.py."""
