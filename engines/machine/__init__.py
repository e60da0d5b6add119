"""What engines and the gateway need of the machine: child processes that end with their parent, ports, private files.

START HERE: lifeline.py.
"""
