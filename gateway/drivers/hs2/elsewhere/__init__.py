"""Statements that other gateways run, or ran until they were gone. START HERE: form.py."""
