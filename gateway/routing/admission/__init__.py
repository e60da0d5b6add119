"""Admission of statements to slots and memory: one budget per engine, pools over all of them. START HERE: admission.py.

A statement holds its lease until its result is closed.
"""
