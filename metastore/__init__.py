"""The metastore: catalog, statistics, queries and attempts, misestimates, jobs. Rows of its database never leave it.

START HERE: store.py, the one object that the rest of the house holds; what its calls return is in ``records.py``.
"""
