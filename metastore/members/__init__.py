"""Gateways that share one database: which of them live, and that only these write. START HERE: membership.py."""
