"""The statistics processor: PySpark jobs that make data and describe it. Started as a process, never imported.

START HERE: __main__.py, what it is asked for and which room does it.
"""
