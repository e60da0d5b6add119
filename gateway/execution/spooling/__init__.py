"""Results as they are written, kept and read again. START HERE: results.py."""
