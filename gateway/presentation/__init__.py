"""What pages, the command line and drivers all say about a statement. START HERE: timeline.py."""
