"""Registry of all families of commands, in the order in which they are asked.

A family is asked about texts that begin with one of its verbs. The first that reads one has it; what none reads is a
query. A new command is a file like its neighbours', and a line here.
"""

from __future__ import annotations

from gateway.commands import caching, explain, refused, session
from gateway.commands.command import Family
from gateway.commands.ddl import (
    catalogs,
    columns,
    comments,
    databases,
    owners,
    partitions,
    properties,
    renaming,
    tables,
    views,
)
from gateway.commands.dml import changes, inserts, maintenance, truncation
from gateway.commands.rights import grants, roles
from gateway.commands.rights import showing as show_rights
from gateway.commands.show import create, describe, files, functions, history
from gateway.commands.show import tables as show_tables
from gateway.commands.statistics import by_hand, computing, dropping, refreshing, showing

FAMILIES: tuple[Family, ...] = (
    Family("EXPLAIN", explain.parse),
    Family("USE SET RESET", session.parse),
    Family("CREATE DROP", catalogs.parse, word="CATALOG"),
    Family("CREATE DROP DESCRIBE DESC SHOW", databases.parse),
    Family("REFRESH INVALIDATE MSCK ALTER", refreshing.parse),  # before others that alter tables: one may have a defect
    Family("CACHE", caching.parse),
    Family("COMPUTE ANALYZE", computing.parse),
    Family("DROP", dropping.parse),
    Family("ALTER", by_hand.parse),
    Family("SHOW", showing.parse),
    Family("SHOW", show_tables.parse),
    Family("SHOW", create.parse),
    Family("SHOW", files.parse),
    Family("SHOW DESCRIBE DESC", functions.parse),
    Family("DESCRIBE DESC", history.parse, word="HISTORY"),
    Family("SHOW", show_rights.parse),
    Family("GRANT REVOKE", grants.parse),
    Family("CREATE DROP", roles.parse, word="ROLE"),
    Family("CREATE DROP ALTER", views.parse),
    Family("CREATE DROP", tables.parse),
    Family("ALTER", partitions.parse),
    Family("TRUNCATE ALTER", truncation.parse),
    Family("ALTER", columns.parse),  # behind those that add or drop partitions
    Family("COMMENT ALTER", comments.parse),
    Family("ALTER SHOW", properties.parse),
    Family("ALTER", owners.parse),
    Family("ALTER", renaming.parse),
    Family("INSERT", inserts.parse),
    Family("FROM WITH", inserts.parse_behind_query, word="INSERT"),
    Family("UPDATE DELETE MERGE", changes.parse),
    Family("OPTIMIZE VACUUM", maintenance.parse),
    Family("DESCRIBE DESC", describe.parse),  # what no other family describes is a table
    Family("CREATE DROP SHOW ALTER UNCACHE LOCK UNLOCK", refused.parse),
)
