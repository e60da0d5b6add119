"""Models of JSON requests and replies, by resource. Names are fixed; fields may be added. START HERE: queries.py."""
