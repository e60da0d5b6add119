"""Statements with their requester and settings. START HERE: statement.py."""

AUTO = "auto"
"""The engine that is asked for where the gateway chooses."""
