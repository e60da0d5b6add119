"""A text -> a checked tree in Spark's meaning, over tables that are known. No engine is named here.

START HERE: statement.py. What a text may hold: allowlist/; what it may cost: limits/; how it is read: parsers/; Hive's
and Impala's SQL in Spark's words: dialects/; what names mean: names.py, resolution.py.
"""
