"""A gateway process over one home folder: its construction, start and end. START HERE: wiring.py."""
