"""The statistics job: table after table, from the files that changed to statistics that are published whole.

START HERE: job.py; ``build.py`` makes one table's.
"""
