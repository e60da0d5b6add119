"""The names and signs of Hive and Impala, in Spark's words. START HERE: normalize.py."""
