"""Writes to lake tables: an engine writes rows aside, and one commit makes them the table's. START HERE: writer.py."""
