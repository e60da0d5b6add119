"""Requests that reach one of several processes and are about what another one owns. START HERE: forwarding.py."""
