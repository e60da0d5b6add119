"""Tables of lake formats: a snapshot becomes a list of files; one folder per format. START HERE: resolution.py.

The libraries of the formats read metadata that strangers wrote, so it runs in processes of its own
(``gateway/catalog/lake/lake_tables.py``). They are imported where they are first used.
"""
