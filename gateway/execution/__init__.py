"""A statement's life, from its text to its rows. START HERE: coordinator.py."""
