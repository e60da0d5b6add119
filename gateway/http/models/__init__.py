"""JSON in and out, by what it is about. Names are fixed; fields may be added. START HERE: queries.py."""
