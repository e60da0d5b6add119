"""Hive, Spark Thrift Server and Kyuubi as the dependable engine, through HiveServer2's protocol and PyHive.

START HERE: engine.py.
"""
