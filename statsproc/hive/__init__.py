"""Exchange of statistics with a Hive Metastore: what others computed comes in, what this project computed goes out.

START HERE: exchange.py.
"""
