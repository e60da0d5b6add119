"""Upper bounds of requests and of files' own descriptions: each is defined here only.

They bound work and memory: requests that people write by hand stay far below them. Request models, definitions of
tables and discovery in files refer to these (``tests/gateway/http/models/test_bounds.py`` checks it).
"""

from __future__ import annotations

LONGEST_STATEMENT = 16 << 20
"""Characters of a text of SQL; ``limits.statement`` may allow less, and no more."""

LONGEST_WORD = 255
"""Characters of a name of a dialect, engine, user, role, column or table."""

LONGEST_KEY = 3 * LONGEST_WORD + 2
"""Characters of a column with its table and database."""

LONGEST_PATH = 4_096
"""Characters of a path, as in Linux (PATH_MAX)."""

LONGEST_VALUE = 8 << 10
"""Characters of the value of a setting or a header."""

MOST_SETTINGS = 256
"""Settings, options or headers that come with one request."""

MOST_NAMES = 1_000
"""Names in one list: tables of a job, tags of a statement."""

MOST_PARTITIONS = 10_000
"""Partitions that one job is confined to."""

MOST_STATEMENTS = 10_000
"""Statements of one workload."""

MOST_COLUMNS = 10_000
"""Columns of a table. Registering so many takes about a second; ten times as many took 26 s (issue 32)."""

LONGEST_TYPE = 64 << 10
"""Characters of the type of a column, with the fields of its structs."""

LONGEST_SCHEMA = 2 << 20
"""Characters of all names and types of a table's columns together."""
