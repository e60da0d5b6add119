"""Older snapshots of lake tables: ``t VERSION AS OF 3`` becomes a table of its own name, with the columns of that time.

The gateway resolves each one before the statement is read for good: the first reading raises ``SnapshotNeeded``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Mapping

from sqlglot import exp

from sql.errors import NotAllowed, Position, SnapshotNeeded, SyntaxInvalid
from sql.nodes import find_all, position_of
from sql.tables import TableSource

_MARK = "@"
"""Between a table's name and its snapshot; no registered table has it in its name."""
VERSION, TIMESTAMP = "version", "timestamp"


def base_name(name: str) -> str:
    """Return the full name of the registered table of which a name may be a snapshot."""
    return name.partition(_MARK)[0]


def snapshot_name(table: str, kind: str, value: str) -> str:
    """Return the name of a table's snapshot in a statement. kind: VERSION or TIMESTAMP, the latter in milliseconds."""
    return f"{table}{_MARK}{kind}:{value}"


def name_snapshots(tree: exp.Expr, catalog: Mapping[str, TableSource], views: Container[str]) -> None:
    """Rename tables of which a query names a snapshot. Raises SnapshotNeeded for one that is not in the catalog.

    Names are full ones by now. Raises NotAllowed for tables and views that have no snapshots.
    """
    for node in find_all(tree, exp.Table):
        version = node.args.get("version")
        if version is None:
            continue
        position = position_of(node)
        table = catalog.get(node.name)
        if node.name in views or (table is not None and not table.is_lake):
            what = "a view" if node.name in views else f"a table of {table.format} files" if table else ""
            raise NotAllowed(f"{node.name} is {what}, which has no older versions: leave AS OF away.", position)
        if table is None:
            node.set("version", None)  # an unknown table, as without its version
            continue
        kind, value = _asked(version, position)
        name = snapshot_name(table.name, kind, value)
        if name not in catalog:
            message = f"The snapshot {value} of {table.name} was not resolved."
            raise SnapshotNeeded(message, position, table=table.name, at=kind, value=value)
        node.this.set("this", name)
        node.this.set("quoted", True)
        node.set("version", None)


def _asked(version: exp.Expr, position: Position | None) -> tuple[str, str]:
    """Return the kind of a version and its value. Raises NotAllowed, SyntaxInvalid."""
    value = version.args.get("expression")
    if isinstance(value, exp.Cast):
        value = value.this
    if str(version.args.get("kind", "")).upper() != "AS OF" or not isinstance(value, exp.Literal):
        message = "A snapshot is named by a literal, as in VERSION AS OF 3 or TIMESTAMP AS OF '2026-01-31'."
        raise NotAllowed(message, position)
    if version.name.upper() == "VERSION":
        return VERSION, value.name
    try:
        moment = dt.datetime.fromisoformat(value.name)
    except ValueError as error:
        message = f"{value.name!r:.80} is no moment: write it as '2026-01-31 12:30:00', in UTC."
        raise SyntaxInvalid(message, position) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return TIMESTAMP, str(int(moment.timestamp() * 1_000))
