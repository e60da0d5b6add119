"""Forecasts of a statement on each engine: memory as a distribution, and seconds, both corrected by earlier runs.

START HERE: experience.py.
"""
