"""The metastore: catalog, statistics, queries and attempts, misestimates, jobs. Rows never leave it."""
