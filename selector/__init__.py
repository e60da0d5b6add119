"""The selector: plans and statistics in, an estimate and a decision out. Pure: no I/O, no clock, no drivers.

START HERE: decide.py, the ranking with every reason.
"""
