"""Generated tables with statistics as the job makes them: the same summaries, cuts and descriptions, without Spark.

A ``World`` holds up to five tables whose columns are called alike behind the table's name:

- ``k``, ``m``: keys of two domains that all tables share, so that every table joins every other on k, on m or on both.
- ``v``, ``s``, ``x``: what is filtered: few integers, few strings, many floats. ``x`` holds no NULL, the others may.

``a``, ``b`` and ``c`` hold keys in different ways; ``d`` holds each key k once, ``e`` each pair of k and m that any
table holds. Which types keys have, how they are spread, where NULLs are, what depends on what, in how many chunks a
table is read and which share of it is sampled follows from the world's number.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.tables import Tables
from metastore.records import CatalogTable
from selector.join_keys import Bins, ColumnRef, KeyPair, key_groups
from selector.statistics import TableStatistics
from sql.tables import Column, TableSource
from statsproc.job.in_memory import Rows, describe_rows
from statsproc.job.reading import key_columns
from statsproc.read.files import TableChunk

KEYS = ("k", "m")
FILTERED = ("v", "s", "x")
COLUMNS = (*KEYS, *FILTERED)
WITHOUT_NULLS = "x"
UNIQUE, PAIRS = "d", "e"  # tables in which a key is unique and complete: k; k and m
FEWEST_ROWS, MOST_ROWS = 50, 3_000
FEWEST_KEYS, MOST_KEYS = 20, 1_500
SAMPLED = (1.0, 0.5, 0.2)  # shares of the rows
MISSING = (0.0, 0.1, 0.6)  # shares of NULLs
TYPES = (pa.int64(), pa.string(), pa.date32())  # of keys
SPARK_TYPES = {pa.int64(): "bigint", pa.float64(): "double", pa.string(): "string", pa.date32(): "date"}
WORDS = np.array(["red", "green", "blue", "black", "grey"])

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Naming:
    """What tables and columns are called; those that are not mentioned as in the world's description."""

    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def table(self, table: str) -> str:
        """Return a table's name."""
        return self.tables.get(table, table)

    def column(self, table: str, column: str) -> str:
        """Return a column's name, which no other table has."""
        return f"{self.table(table)}_{self.columns.get(column, column)}"


PLAIN = Naming()


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """Tables and what is known of them.

    title: how it was made. rows: by table, with columns as in the description. statistics: by the tables' names.
    joined: pairs of keys that are. bins: of the key groups. sampled: share of the rows in the samples.
    chunks: files of a table.
    """

    title: str
    rows: Mapping[str, pa.Table]
    naming: Naming
    statistics: Mapping[str, TableStatistics]
    joined: frozenset[KeyPair]
    bins: Mapping[str, Bins]
    sampled: float
    chunks: int

    def __repr__(self) -> str:
        return self.title

    @property
    def names(self) -> list[str]:
        """The tables, by their letters."""
        return list(self.rows)

    def type(self, table: str, column: str) -> str:
        """Return a column's type, as Spark calls it."""
        return SPARK_TYPES[self.rows[table].schema.field(column).type]

    def written(self, text: str, table: str) -> str:
        """Write a predicate for a table: ``{k}`` is replaced by that column's name."""
        return text.format_map({column: self.naming.column(table, column) for column in COLUMNS})

    def stored(self, table: str) -> pa.Table:
        """Return a table with its columns' names."""
        return _called(self.rows[table], table, self.naming)

    @cached_property
    def catalog(self) -> Tables:
        """The tables as the gateway knows them when it reads a plan."""
        tables = {}
        for name, rows in self.rows.items():
            columns = tuple(Column(field.name, SPARK_TYPES[field.type]) for field in self.stored(name).schema)
            source = TableSource(self.naming.table(name), f"/{name}", "parquet", columns)
            tables[source.name] = CatalogTable(source, 1, 0, rows.num_rows, (), dt.datetime.min)
        return Tables(tables, self.statistics)

    def values(self, table: str, column: str) -> list[str]:
        """Return the different values of a column, as literals of SQL in order."""
        found = self.rows[table].column(column).drop_null().unique().to_pylist()
        return [literal(value) for value in sorted(found)]


def literal(value: object) -> str:
    """Write a value in SQL."""
    if isinstance(value, dt.date):
        return f"CAST('{value}' AS DATE)"
    return f"'{value}'" if isinstance(value, str) else repr(value)


# ---------------------------------------------------------------------- rows


@lru_cache(maxsize=128)
def world(number: int) -> World:
    """Make a world. Those with even numbers are sampled whole, of others a part is."""
    chance = np.random.default_rng(number)
    size = int(_between(chance, FEWEST_KEYS, MOST_KEYS))
    few = int(chance.integers(2, 40))
    types = [TYPES[at] for at in chance.integers(0, len(TYPES), 2)]
    keys = {name: _keys(chance, size, few) for name in "abc"[: 1 + number // 2 % 3]}
    keys[UNIQUE] = _unique(chance, size, few)
    keys[PAIRS] = _pairs(chance, list(keys.values()))
    rows = {}
    for name, (k, m) in keys.items():
        rows[name] = pa.table({"k": _typed(k, types[0]), "m": _typed(m, types[1]), **_others(chance, k, size)})
    sampled = float(chance.choice(SAMPLED[1:])) if number % 2 else SAMPLED[0]
    return described(f"world({number})", rows, sampled=sampled, chunks=int(chance.integers(1, 3)))


def _between(chance: np.random.Generator, low: int, high: int) -> float:
    """Draw a number whose order of magnitude is even."""
    return float(np.exp(chance.uniform(np.log(low), np.log(high))))


def _keys(chance: np.random.Generator, size: int, few: int) -> tuple[Codes, Codes]:
    """Draw a table's keys, -1 for NULL: even or skewed, all of them or few; m by chance or a function of k."""
    rows = int(_between(chance, FEWEST_ROWS, MOST_ROWS))
    match chance.integers(0, 3):
        case 0:
            k = chance.integers(0, size, rows)
        case 1:
            k = (chance.zipf(1.3, rows) - 1) % size
        case _:
            k = chance.integers(0, max(2, size // 20), rows)
    m = k % few if chance.random() < 0.5 else (chance.zipf(1.6, rows) - 1) % few
    for key in (k, m):
        key[chance.random(rows) < chance.choice(MISSING)] = -1
    return k.astype(np.int64), m.astype(np.int64)


def _unique(chance: np.random.Generator, size: int, few: int) -> tuple[Codes, Codes]:
    k = chance.permutation(size).astype(np.int64)
    return k, k % few


def _pairs(chance: np.random.Generator, tables: Sequence[tuple[Codes, Codes]]) -> tuple[Codes, Codes]:
    k, m = (np.concatenate([keys[at] for keys in tables]) for at in range(2))
    there = (k >= 0) & (m >= 0)
    found = chance.permutation(np.unique(np.stack([k[there], m[there]], axis=1), axis=0))
    return found[:, 0], found[:, 1]


def _typed(codes: Codes, data_type: pa.DataType) -> pa.Array:
    absent = codes < 0
    if pa.types.is_string(data_type):
        return pa.array([None if code < 0 else f"key {code:05d}" for code in codes.tolist()], data_type)
    if pa.types.is_date(data_type):
        days = codes + (dt.date(2020, 1, 1) - dt.date(1970, 1, 1)).days
        return pa.array(days.astype(np.int32), pa.int32(), mask=absent).cast(data_type)
    return pa.array(codes, data_type, mask=absent)


def _others(chance: np.random.Generator, k: Codes, size: int) -> dict[str, pa.Array]:
    """Draw what is filtered: by chance, or by the key and by how frequent it is."""
    rows = k.size
    frequent = np.bincount(k + 1, minlength=size + 1)[k + 1]
    v = np.minimum(frequent, 20) if chance.random() < 0.5 else chance.integers(0, 20, rows)
    x = np.round(chance.exponential(50.0, rows) + (k * 0.5 if chance.random() < 0.5 else 0.0), 2)
    s = WORDS[np.minimum(chance.geometric(0.5, rows) - 1, WORDS.size - 1)]
    absent = chance.random((2, rows)) < chance.choice(MISSING, (2, 1))
    return {
        "v": pa.array(v.astype(np.int64), mask=absent[0]),
        "s": pa.array(s.tolist(), pa.string(), mask=absent[1]),
        "x": pa.array(x),
    }


# ---------------------------------------------------------------------- other worlds of the same rows


@lru_cache(maxsize=128)
def renamed(known: World) -> World:
    """Return the world in which every table bears another one's name, and every column a new one."""
    names = known.names
    tables = dict(zip(names, [*names[1:], names[0]], strict=True))
    return described(
        f"renamed({known})",
        known.rows,
        sampled=known.sampled,
        chunks=known.chunks,
        naming=Naming(tables, dict(zip(COLUMNS, ("m", "zone", "k", "a", "key"), strict=True))),
    )


@lru_cache(maxsize=128)
def scaled(known: World, table: str, times: int) -> World:
    """Return the world in which a table holds each row several times, in as many files; keys stay cut as they are."""
    return described(
        f"scaled({known}, {table!r}, {times})",
        known.rows,
        sampled=known.sampled,
        chunks=known.chunks,
        copies={table: times},
        bins=known.bins,
    )


@lru_cache(maxsize=128)
def parted(known: World, table: str, *, by: str) -> World:
    """Return the world with two more tables, ``p`` and ``q``, which share the rows of one out.

    by: ``rows``, of which every other one goes to p, or the column whose smaller values do.
    """
    rows = known.rows[table]
    if by == "rows":
        low = np.arange(rows.num_rows) % 2 == 0
    else:
        codes = rows.column(by).combine_chunks().dictionary_encode()
        place = np.argsort(np.argsort(codes.dictionary.to_pylist()))
        at = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        low = (at >= 0) & (place[at] < len(place) // 2)
    parts = {"p": rows.filter(pa.array(low)), "q": rows.filter(pa.array(~low))}
    return described(
        f"parted({known}, {table!r}, by={by!r})",
        {**known.rows, **parts},
        sampled=known.sampled,
        chunks=known.chunks,
        bins=known.bins,
    )


# ---------------------------------------------------------------------- what is known of it


def described(
    title: str,
    rows: Mapping[str, pa.Table],
    *,
    sampled: float,
    chunks: int,
    naming: Naming = PLAIN,
    copies: Mapping[str, int] | None = None,
    bins: Mapping[str, Bins] | None = None,
) -> World:
    """Compute statistics as a job over all of the tables does: it looks for keys, cuts them, and reads all once more.

    copies: how often a table is read. bins: of keys that were cut before. What is drawn for the samples follows from
    the tables' letters, as it follows from the files' names, whatever the tables are called.
    """
    copies = copies or {}
    rows = {name: pa.concat_tables([table] * copies.get(name, 1)) for name, table in rows.items()}
    stored = {name: _called(table, name, naming) for name, table in rows.items()}
    joined = _joined(rows, naming)
    group_of = {member: group for group, members in key_groups(joined).items() for member in members}
    asked = {}
    for name, table in stored.items():
        types = {field.name: SPARK_TYPES[field.type] for field in table.schema}
        parts = list(_chunks(name, table, chunks, copies.get(name, 1)))
        asked[naming.table(name)] = Rows(parts, types, key_columns(naming.table(name), types, group_of))
    found = describe_rows(asked, bins=bins, sampled=sampled)
    return World(title, rows, naming, found.statistics, frozenset(joined), found.bins, sampled, chunks)


def _called(rows: pa.Table, table: str, naming: Naming) -> pa.Table:
    return rows.rename_columns([naming.column(table, column) for column in rows.column_names])


def _joined(tables: Iterable[str], naming: Naming) -> set[KeyPair]:
    """Return the pairs of keys by which tables are joined: any two, of each key and of both together."""
    found = set()
    for a, b in combinations_with_replacement(tables, 2):
        pairs = [
            tuple(ColumnRef(naming.table(table), naming.column(table, key).lower()) for table in (a, b)) for key in KEYS
        ]
        found |= {KeyPair.of(left, right) for left, right in pairs}
        found.add(KeyPair.together([(left, right) for left, right in pairs]))
    return found


def _chunks(name: str, rows: pa.Table, chunks: int, copies: int) -> Iterable[TableChunk]:
    """Yield what a task reads in one go; its name is that of a file of one row group."""
    for file, part in files(name, rows.slice(0, rows.num_rows // copies), chunks) * copies:
        yield TableChunk(f"/{file} 0", "", part)


def files(name: str, rows: pa.Table, count: int) -> list[tuple[str, pa.Table]]:
    """Return the files of a table, by name."""
    each = max(1, -(-rows.num_rows // count))
    starts = range(0, max(1, rows.num_rows), each)
    return [(f"{name}-{number}.parquet", rows.slice(at, each)) for number, at in enumerate(starts)]
