"""``fusion shell``: statements typed one after the other, under settings that last. START HERE: loop.py."""
