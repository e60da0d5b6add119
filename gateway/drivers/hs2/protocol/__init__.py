"""HiveServer2's bytes: structs, row sets and log-in over a codec of our own. START HERE: thrift.py."""
