"""What table a folder or file is, told from the files themselves, format by format, in a process of its own.

START HERE: inspection.py.
"""
