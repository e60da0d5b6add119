"""Grammar that the families share: words, names of the catalog, conditions, columns, queries. START HERE: reader.py."""
