"""Tables of lake formats: a snapshot becomes a list of files. START HERE resolution.py; one module per format.

The libraries of the formats read metadata that strangers wrote, so ``resolution.resolve`` runs in a process of its own
(``gateway/catalog/lake_snapshots.py``). The libraries are imported where they are first used.
"""
