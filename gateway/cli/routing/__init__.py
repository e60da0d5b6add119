"""Commands about where statements go: rules, and history decided again. START HERE: rules.py."""
