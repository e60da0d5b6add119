"""HiveServer2: the protocol of Hive's, Spark's and Impala's drivers. START HERE: service.py."""
