"""One cost model per fast engine: how its plan is read, and what it takes.

START HERE: model.py.
"""
