"""The `fusion` command. START HERE: main.py."""
