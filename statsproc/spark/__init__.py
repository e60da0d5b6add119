"""The Spark that jobs run in, and how far it is.

START HERE: session.py.
"""
