"""Names of tables and views in a statement: each gets its full name (``qualify``) before views are expanded.

An older snapshot of a lake table, ``t VERSION AS OF 3``, becomes a table with a name of its own (``name_snapshots``).

``resolution.py`` then looks up the tables and columns.
"""

from __future__ import annotations

import datetime as dt
import difflib
import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sql.errors import NotAllowed, Position, SnapshotNeeded, SyntaxInvalid, TableUnreadable, UnknownDatabase
from sql.nodes import PARTS, find_all, position_of
from sql.tables import (
    DEFAULT_DATABASE,
    METADATA_TABLES,
    SNAPSHOT_MARK,
    TableSource,
    canonical,
    database_of,
    full_name,
    name_in_database,
)

CATALOG = "spark_catalog"  # the only one, by the name of Spark's clients
SUGGESTIONS = 3
_FILE_SOURCES = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile"})
QUALIFIER = "qualifier"
"""Key of the ``meta`` of a table without an alias: catalog, database and name, which may stand before its columns.

For common table expressions and temporary views it is the name alone, and only if one FROM has tables of one name.
"""

_METADATA = "metadata"  # name of the metadata table that is meant, of a table node with the table's name
_QUALIFIED = "full name"  # marks tables with a full name: it is not the name of a common table expression


VERSION, TIMESTAMP, METADATA = "version", "timestamp", "metadata"
"""Kinds of names of snapshots."""


@dataclass(frozen=True, slots=True)
class Naming:
    """Rules for names of tables and views in a statement. database: of bare names. databases: all that exist."""

    database: str = DEFAULT_DATABASE
    databases: frozenset[str] = frozenset({DEFAULT_DATABASE})

    def full(self, parts: Sequence[str]) -> str:
        """Return the full name for a name's parts; the table need not exist.

        A quoted name with a dot in it is a full name.
        """
        before, name = [part.lower() for part in parts[:-1]], parts[-1]
        if before[:1] == [CATALOG] and len(before) > 1:
            del before[0]
        if len(before) == 1 and "." in self.database:  # in a catalog, two parts are meant to be its own first
            inside = f"{self.database.partition('.')[0]}.{before[0]}"
            before = [inside] if inside in self.databases else before
        if before:
            return full_name(".".join(before), name)
        return canonical(name) if "." in name else full_name(self.database, name)

    def require(self, database: str, position: Position | None = None) -> str:
        """Return the name of a database in lower case. Raises UnknownDatabase."""
        name = database.lower()
        if name not in self.databases:
            names = sorted(self.databases)
            existing = f"; there is {' and '.join(names)}." if len(names) < SUGGESTIONS else did_you_mean(name, names)
            raise UnknownDatabase(f"There is no database {database}{existing}", position)
        return name


IN_DEFAULT = Naming()


def temporary_name(name: str) -> str:
    """Return the key of a session's own view among all views: it is in no database."""
    return f".{name.lower()}"


def qualifier_of(full: str) -> tuple[str, ...]:
    """Return catalog, database and name, which may stand before a column of a table or view without an alias."""
    database, name = database_of(full), name_in_database(full)
    return (*database.split("."), name) if "." in database else (CATALOG, database, name)


def qualify(
    tree: exp.Expr,
    naming: Naming,
    views: Container[str],
    catalog: Mapping[str, TableSource],
    *,
    sees_temporary: bool = True,
) -> None:
    """Write the full names of tables and views into a query; each keeps its written name as its alias.

    views: keys of all views.
    sees_temporary: for a bare name, the session's own views come first.
    """
    _tell_same_names_apart(tree)
    for node, expression in list(tables_named(tree)):
        if expression is not None or not isinstance(node.this, exp.Identifier) or node.meta.get(_QUALIFIED):
            continue
        if node.db.lower() in _FILE_SOURCES and node.db.lower() not in naming.databases:
            raise NotAllowed("Files cannot be read directly; register them as a table.", position_of(node))
        own = temporary_name(node.name)
        is_own = sees_temporary and not node.db and own in views
        parts = node.meta.get(PARTS) or [part.name for part in node.parts]
        full = own if is_own else naming.full(parts)
        qualifier = qualifier_of(full)
        if full not in catalog and full not in views and _is_of_metadata(parts, naming, catalog):
            full, metadata = naming.full(parts[:-1]), parts[-1].lower()
            node.meta[_METADATA] = metadata
            qualifier = (*qualifier_of(full), metadata)
        alias = node.args.get("alias")
        if alias is None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name.lower())))
        elif not alias.this:
            alias.set("this", exp.to_identifier(node.name.lower()))
        node.this.meta.update(node.parts[0].meta)  # the position of the whole name
        # Complete is that of a table that a DELETE or MERGE changes, which has another name in its query.
        is_complete = len(node.meta.get(QUALIFIER, ())) > 1
        if (alias is None or QUALIFIER in node.meta) and not is_own and not is_complete:
            node.meta[QUALIFIER] = qualifier
        rename(node, full)
        node.set("db", None)
        node.set("catalog", None)
        node.meta[_QUALIFIED] = True


def _is_of_metadata(parts: Sequence[str], naming: Naming, catalog: Mapping[str, TableSource]) -> bool:
    """Return True for the name of an Iceberg table with that of a metadata table behind it."""
    if len(parts) == 1 or parts[-1].lower() not in METADATA_TABLES:
        return False
    table = catalog.get(naming.full(parts[:-1]))
    return table is not None and table.format == "iceberg"


def rename(node: exp.Table, full: str) -> None:
    """Rename a table node; its position stays."""
    node.this.set("this", full)
    node.this.set("quoted", True)


def _tell_same_names_apart(tree: exp.Expr) -> None:
    """Give tables of one FROM that have the same name different aliases; columns may still use their names."""
    for select in find_all(tree, exp.Select):
        sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
        bare = [source.this for source in sources if source is not None and isinstance(source.this, exp.Table)]
        used = Counter(node.alias_or_name.lower() for node in bare)
        for node in [node for node in bare if not node.alias and used[node.name.lower()] > 1]:
            alias = f"{node.db}_{node.name}".strip("_").lower()
            while alias in used:
                alias += "_"
            used[alias] += 1
            node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
            node.meta[QUALIFIER] = (node.name.lower(),)


@dataclass(frozen=True, slots=True)
class _Visible:
    """Common table expressions that are visible: those of one WITH before ``end``, and outer ones."""

    places: Mapping[str, tuple[int, exp.CTE]]
    end: int
    outer: _Visible | None

    def find(self, name: str) -> exp.CTE | None:
        visible: _Visible | None = self
        while visible is not None:
            at, expression = visible.places.get(name, (visible.end, None))
            if at < visible.end:
                return expression
            visible = visible.outer
        return None


def tables_named(tree: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    """Yield all tables that a query names, each with the common table expression of that name; None: it is none."""
    waiting: list[tuple[exp.Expr, _Visible | None]] = [(tree, None)]
    while waiting:
        node, visible = waiting.pop()
        clause = node.args.get("with_")
        if clause is not None:
            expressions = clause.expressions
            places = {cte.alias.lower(): (at, cte) for at, cte in enumerate(expressions)}
            itself = 1 if clause.args.get("recursive") else 0
            waiting += [(cte, _Visible(places, at + itself, visible)) for at, cte in enumerate(expressions)]
            visible = _Visible(places, len(expressions), visible)
        if isinstance(node, exp.Table):
            own = node.db or visible is None or node.meta.get(_QUALIFIED)
            yield node, None if own or visible is None else visible.find(node.name.lower())
        waiting += [(child, visible) for child in node.iter_expressions() if child is not clause]


def require_usable(table: TableSource, position: Position | None = None) -> TableSource:
    """Return a table as it is.

    Raises TableUnreadable if its stored definition cannot be used, SnapshotNeeded for a catalog's table of which only
    the name is known.
    """
    if table.defect:
        message = f"The table {table.name} cannot be used: {table.defect}. REFRESH it, register it again, or drop it."
        raise TableUnreadable(message, position)
    if table.is_lake and not table.columns:
        raise SnapshotNeeded(f"The table {table.name} has no columns.", position, table=table.name)
    return table


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the nearest candidates as the end of a message."""
    near = difflib.get_close_matches(name.lower(), sorted(candidates), n=SUGGESTIONS, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else "."


# ---------------------------------------------------------------------- snapshots of lake tables


def base_name(name: str) -> str:
    """Return the full name of the registered table of which a name may be a snapshot."""
    return name.partition(SNAPSHOT_MARK)[0]


def snapshot_name(table: str, kind: str, value: str) -> str:
    """Return the name of a table's snapshot in a statement. kind: VERSION or TIMESTAMP, the latter in milliseconds.

    Names of tables are the same in any case; those of branches and tags are not.
    """
    if value != value.casefold():
        value = f"{value.casefold()}~{hashlib.sha256(value.encode()).hexdigest()[:12]}"
    return f"{table}{SNAPSHOT_MARK}{kind}:{value}"


def names_a_snapshot(node: exp.Table) -> bool:
    """Tell whether a table is named with a version, or with a metadata table behind it."""
    return node.args.get("version") is not None or _METADATA in node.meta


def name_snapshots(tree: exp.Expr, catalog: Mapping[str, TableSource], views: Container[str]) -> None:
    """Rename tables of which a query names a snapshot. Raises SnapshotNeeded for one that is not in the catalog.

    Names are full ones by now. Raises NotAllowed for tables and views that have no snapshots.
    """
    for node in find_all(tree, exp.Table):
        version, metadata = node.args.get("version"), node.meta.pop(_METADATA, None)
        if version is None and metadata is None:
            continue
        position = position_of(node)
        table = catalog.get(node.name)
        if node.name in views or (table is not None and not table.is_lake):
            what = f"a table of {table.format} files" if table is not None else "a view"
            raise NotAllowed(f"{node.name} is {what}, which has no older versions: remove AS OF.", position)
        if table is None:
            node.set("version", None)  # an unknown table, as without its version
            continue
        if metadata is None:
            assert version is not None
            kind, value = _kind_and_value(version, position)
        elif version is None:
            kind, value = METADATA, metadata
        else:
            raise NotAllowed(f"{metadata} tells of the newest snapshot alone: remove AS OF.", position)
        name = snapshot_name(table.name, kind, value)
        if name not in catalog:
            message = f"The snapshot {value} of {table.name} was not resolved."
            raise SnapshotNeeded(message, position, table=table.name, at=kind, value=value)
        node.this.set("this", name)
        node.this.set("quoted", True)
        node.set("version", None)


def _kind_and_value(version: exp.Expr, position: Position | None) -> tuple[str, str]:
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
        message = f"{value.name!r:.80} is not a timestamp: write it as '2026-01-31 12:30:00', in UTC."
        raise SyntaxInvalid(message, position) from error
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return TIMESTAMP, str(int(moment.timestamp() * 1_000))
