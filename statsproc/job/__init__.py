"""The statistics job: table after table, from the files that changed to statistics that are published whole.

START HERE: job.py; ``build.py`` makes one table's of what ``reading.py`` reads, ``in_memory.py`` those of rows at hand.
"""
