"""Requests before their route: who sends them, how large they are, and when it is their turn. START HERE: routes.py."""
