"""Engines: one small protocol, one error tree, one folder per engine.

START HERE: protocol.py, what every engine can do; ``errors.py`` says what can go wrong.
"""
