"""The REST interface: the asynchronous edge over a synchronous core. START HERE: queries.py."""
