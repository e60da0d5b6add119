"""The query log: written for many queries in one transaction (group commit), searched, and summed up.

START HERE: writer.py, the thread that writes; changes.py says which rows, search.py which queries are found, and
workload.py makes the sums.
"""
