"""Routing of statements to engines: estimates, history, admission, circuit breakers. START HERE: router.py."""
