"""Recorded history, decided again under other settings: what would have changed, without running anything.

START HERE: replay.py, the walk through the history.
"""
