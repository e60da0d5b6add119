"""Impala as the fast engine, over HiveServer2."""
