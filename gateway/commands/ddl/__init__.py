"""Statements that make, change and drop tables, views and databases; no query's rows but those of CREATE TABLE ... AS.

START HERE: databases.py, a whole family.
"""
