"""What a statement will need on each engine: memory as a distribution, seconds, and what earlier runs taught of both.

START HERE: experience.py.
"""
