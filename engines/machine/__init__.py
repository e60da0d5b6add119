"""Resources of the machine for engines and the gateway: child processes that end with their parent, ports, files.

START HERE: lifeline.py.
"""
