"""What was asked, by whom, with which settings. START HERE: statement.py."""

AUTO = "auto"
"""The engine that is asked for where the gateway chooses."""
