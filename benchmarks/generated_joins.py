"""Statements over a schema that is there, of every kind that a query plan has, made from a seed.

A schema's joins say which columns have equal values, such as ``flights(origin, hour) = weather(origin, hour)``; which
side is unique is counted. Each kind is a function that makes one statement; what comes out may be empty or endless, so
that the truth (``benchmarks.generated_truth``) decides which are kept. It is long: one function per kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import duckdb

from benchmarks.claim import RunFailed
from benchmarks.generated_predicates import Predicates, Row, Table, literal

MOST_JOINS = 6
WITNESSED = 0.6  # share of statements whose predicates one row of the join keeps

_SIDE = re.compile(r"\s*(\w+)\s*\(([\w\s,]+)\)\s*")


@dataclass(frozen=True, slots=True)
class Side:
    """Columns of a table. unique: whether they are a key."""

    table: str
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Two sides whose columns have equal values, in the same order."""

    left: Side
    right: Side

    @property
    def turned(self) -> Join:
        """Return it from the other side."""
        return Join(self.right, self.left)


class Schema:
    """Tables of a connection and what joins them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, joins: Sequence[str]) -> None:
        names = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        self.tables = {name: Table(connection, name) for name in sorted(names)}
        declared = [self._read(text) for text in joins]
        self.joins = declared + [join.turned for join in declared if join.left != join.right]
        self.keys = [join for join in self.joins if join.right.unique and join.left.table != join.right.table]
        self.many = [
            Join(one.left, other.left)
            for one in self.keys
            for other in self.keys
            if one.right == other.right and one.left.table != other.left.table
        ]
        self.many = [join for join in (*self.joins, *self.many) if not (join.left.unique or join.right.unique)]

    def _read(self, text: str) -> Join:
        sides = [_SIDE.fullmatch(side) for side in text.split("=")]
        if len(sides) != 2 or not sides[0] or not sides[1]:
            raise RunFailed(f"no join: {text}; it is t(a, b) = u(c, d)")
        left, right = (self._side(side[1], side[2]) for side in sides if side)
        if len(left.columns) != len(right.columns):
            raise RunFailed(f"not as many columns on the right as on the left: {text}")
        return Join(left, right)

    def _side(self, table: str, columns: str) -> Side:
        names = tuple(column.strip() for column in columns.split(","))
        if table not in self.tables or not set(names) <= set(self.tables[table].columns):
            raise RunFailed(f"no such table or column: {table}({columns})")
        return Side(table, names, self.tables[table].is_unique(names))


@dataclass
class Joined:
    """A FROM clause that grows. aliases: with their tables; witness: a row of each that the others' rows match."""

    aliases: dict[str, Table] = field(default_factory=dict)
    conditions: list[tuple[str, str]] = field(default_factory=list)
    witness: dict[str, Row] = field(default_factory=dict)

    def add(self, table: Table, row: Row, condition: str = "") -> str:
        """Add a table; returns its alias."""
        alias = "abcdefgh"[len(self.aliases)]
        self.aliases[alias] = table
        self.witness[alias] = row
        self.conditions.append((alias, condition))
        return alias

    def written(self, where: Sequence[str], chance: random.Random, kind: str = "JOIN") -> str:
        """Write FROM and WHERE, with conditions in either place."""
        tables = [f"{self.aliases[alias].name} {alias}" for alias, _ in self.conditions]
        if kind == "JOIN" and chance.random() < 0.4:
            where = [*(condition for _, condition in self.conditions if condition), *where]
            text = ", ".join(tables)
        else:
            text = tables[0] + "".join(
                f" {kind} {table} ON {condition}"
                for table, (_, condition) in zip(tables[1:], self.conditions[1:], strict=True)
            )
        return f"FROM {text}{' WHERE ' if where else ''}{' AND '.join(where)}"


class Statements:
    """Makes statements over a schema; the same seed makes the same of each kind, in the same order."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._schema = schema
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311 - not for secrets
        self._predicates = Predicates(self._chance)
        self.kinds: Mapping[str, Callable[[], str | None]] = {
            "one predicate": self._one_predicate,
            "several predicates": self._several_predicates,
            **{f"{n} join{'s' * (n > 1)}": partial(self._along_keys, n) for n in range(1, MOST_JOINS + 1)},
            "many-to-many": self._many_to_many,
            "self join": self._self_join,
            "composite key": self._composite_key,
            "constant on key": self._constant_on_key,
            "outer join": self._outer_join,
            "semi-join": self._semi_join,
            "anti-join": self._anti_join,
            "non-equi join": self._non_equi_join,
            "groups": self._groups,
            "having": self._having,
            "distinct": self._distinct,
            "window": self._window,
            "correlated subquery": self._correlated,
            "CTE": self._cte,
        }

    def of(self, kind: str) -> Iterator[str]:
        """Make different statements of a kind, without end unless the schema has none or no more of it."""
        self._chance.seed(f"{self._seed} {kind}")
        seen: set[str] = set()
        in_vain = 0
        while in_vain < 200:
            sql = self.kinds[kind]()
            if sql is None or sql in seen:
                in_vain += 1
                continue
            in_vain = 0
            seen.add(sql)
            yield sql

    # One table

    def _one_predicate(self) -> str:
        table = self._table()
        return f"SELECT count(*) FROM {table.name} a WHERE {self._predicates.one(table, 'a')}"

    def _several_predicates(self) -> str:
        table = self._table()
        row = self._row(table) if self._chance.random() < WITNESSED else None
        made = self._predicates.several(table, "a", self._chance.choice([2, 2, 3, 3, 4, 5]), row)
        return f"SELECT count(*) FROM {table.name} a WHERE {' AND '.join(made)}"

    # Joins

    def _along_keys(self, number: int) -> str | None:
        joined = self._grown(number)
        return None if joined is None else self._counted(joined, self._filters(joined))

    def _grown(self, number: int) -> Joined | None:
        """Join along keys, so that there are no more rows than one of the tables has."""
        chance = self._chance
        joined = Joined()
        if chance.random() < 0.25:
            start = chance.choice(self._schema.keys) if self._schema.keys else None
            if start is None:
                return None
            first = joined.add(
                self._schema.tables[start.right.table], self._row(self._schema.tables[start.right.table])
            )
            self._attach(joined, first, start.turned)
        else:
            starts = sorted({join.left.table for join in self._schema.keys})
            if not starts:
                return None
            table = self._schema.tables[chance.choice(starts)]
            joined.add(table, self._row(table))
        while len(joined.aliases) <= number:
            taken = set(joined.conditions)
            open_ends = [
                (alias, join)
                for alias, table in joined.aliases.items()
                for join in self._schema.keys
                if join.left.table == table.name and not _repeats(joined, alias, join)
            ]
            if not open_ends:
                return None
            self._attach(joined, *chance.choice(open_ends))
            if set(joined.conditions) == taken:
                return None
        return joined if len(joined.aliases) == number + 1 else None

    def _many_to_many(self) -> str | None:
        chance = self._chance
        if not self._schema.many:
            return None
        joined = self._pair(chance.choice(self._schema.many))
        if chance.random() < 0.4:
            self._extend(joined)
        return self._counted(joined, self._filters(joined, least=1))

    def _self_join(self) -> str | None:
        sides = [side for join in self._schema.joins for side in (join.left, join.right) if not side.unique]
        if not sides:
            return None
        side = self._chance.choice(sides)
        joined = self._pair(Join(side, side))
        more = self._filters(joined)
        if self._chance.random() < 0.5:
            names = [name for name, column in joined.aliases["a"].columns.items() if not column.is_long]
            more.append(f"a.{(name := self._chance.choice(names))} {self._chance.choice(['<', '<>'])} b.{name}")
        elif self._chance.random() < 0.4:
            self._extend(joined)
        return self._counted(joined, more)

    def _composite_key(self) -> str | None:
        joins = [join for join in self._schema.joins if len(join.left.columns) > 1]
        if not joins:
            return None
        joined = self._pair(self._chance.choice(joins))
        if self._chance.random() < 0.3:
            self._extend(joined)
        return self._counted(joined, self._filters(joined))

    def _constant_on_key(self) -> str | None:
        chance = self._chance
        joins = [join for join in self._schema.joins if not (join.left.unique and join.right.unique)]
        if not joins:
            return None
        join = chance.choice(joins)
        joined = self._pair(join)
        at = chance.randrange(len(join.left.columns))
        row = joined.witness if chance.random() < 0.8 else {}
        sides = {"a": join.left, "b": join.right}
        where = [
            self._predicates.on_key(joined.aliases[alias], alias, sides[alias].columns[at], row.get(alias))
            for alias in chance.choice([["a"], ["b"], ["a", "b"]])
        ]
        if chance.random() < 0.3:
            self._extend(joined)
        if chance.random() < 0.4:
            alias = chance.choice(list(joined.aliases))
            where.append(self._predicates.one(joined.aliases[alias], alias, joined.witness[alias]))
        return self._counted(joined, where)

    def _outer_join(self) -> str | None:
        chance = self._chance
        if not self._schema.joins:
            return None
        join = chance.choice(self._schema.joins)
        joined = self._pair(join)
        kind = chance.choice(["LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        kept = "b" if kind == "RIGHT JOIN" else "a"
        other = "a" if kept == "b" else "b"
        where = []
        if kind != "FULL JOIN" and chance.random() < 0.5:
            extra = self._predicates.one(joined.aliases[other], other)
            joined.conditions[1] = ("b", f"{joined.conditions[1][1]} AND {extra}")
        if chance.random() < 0.7:
            where.append(self._predicates.one(joined.aliases[kept], kept, joined.witness[kept]))
        if chance.random() < 0.35:
            column = (join.right if other == "b" else join.left).columns[0]
            where.append(f"{other}.{column} IS NULL")
        if kind == "LEFT JOIN" and chance.random() < 0.25:
            self._extend(joined)
        return f"SELECT count(*) {joined.written(where, chance, kind)}"

    def _semi_join(self) -> str | None:
        return self._existing("EXISTS", "IN")

    def _anti_join(self) -> str | None:
        return self._existing("NOT EXISTS", "NOT IN")

    def _existing(self, exists: str, listed: str) -> str | None:
        chance = self._chance
        if not self._schema.joins:
            return None
        join = chance.choice(self._schema.joins)
        outer, inner = self._schema.tables[join.left.table], self._schema.tables[join.right.table]
        row = self._row(outer)
        match = self._matching(join, row) if chance.random() < WITNESSED and exists == "EXISTS" else None
        within = self._predicates.several(inner, "b", chance.choice([1, 1, 2]), match) if chance.random() < 0.8 else []
        without = self._predicates.several(outer, "a", chance.choice([1, 1, 2]), row) if chance.random() < 0.6 else []
        equal = self._equal(join, "a", "b")
        nulls = any(inner.columns[column].nulls for column in join.right.columns)
        if len(join.left.columns) == 1 and chance.random() < 0.5 and (listed == "IN" or not nulls):
            where = f" WHERE {' AND '.join(within)}" if within else ""
            test = f"a.{join.left.columns[0]} {listed} (SELECT b.{join.right.columns[0]} FROM {inner.name} b{where})"
        else:
            test = f"{exists} (SELECT 1 FROM {inner.name} b WHERE {' AND '.join([equal, *within])})"
        third = None
        if chance.random() < 0.25:
            ends = [key for key in self._schema.keys if key.left.table == outer.name]
            third = chance.choice(ends) if ends else None
        if third is None:
            return f"SELECT count(*) FROM {outer.name} a WHERE {' AND '.join([*without, test])}"
        joined = f"{outer.name} a JOIN {third.right.table} c ON {self._equal(third, 'a', 'c')}"
        return f"SELECT count(*) FROM {joined} WHERE {' AND '.join([*without, test])}"

    def _non_equi_join(self) -> str | None:
        chance = self._chance
        if chance.random() < 0.6 and self._schema.joins:
            joined = self._pair(chance.choice(self._schema.joins))
        else:
            joined = Joined()
            for table in (self._table(), self._table()):
                joined.add(table, self._row(table))
        first, second = joined.aliases["a"], joined.aliases["b"]
        pairs = [
            (left, right)
            for left in first.columns.values()
            for right in second.columns.values()
            if left.comparable(right) and not left.is_text and min(left.ndv, right.ndv) > 2
        ]
        if not pairs:
            return None
        alike = [(left, right) for left, right in pairs if left.name == right.name]
        left, right = chance.choice(alike if alike and chance.random() < 0.5 else pairs)
        if left.is_number and chance.random() < 0.4:
            span = literal(abs((chance.choice(right.distinct) - chance.choice(right.distinct)) * chance.choice([1, 2])))
            text = f"a.{left.name} BETWEEN b.{right.name} AND b.{right.name} + {span}"
        else:
            text = f"a.{left.name} {chance.choice(['<', '<=', '>', '>='])} b.{right.name}"
        before = joined.conditions[1][1]
        joined.conditions[1] = ("b", f"{before} AND {text}" if before else text)
        return self._counted(joined, self._filters(joined, least=0 if before else 2))

    # What stands above

    def _groups(self) -> str | None:
        found = self._grouped()
        if found is None:
            return None
        columns, source = found
        grouped = f"{', '.join(columns)}, count(*) AS group_rows {source} GROUP BY {', '.join(columns)}"
        if self._chance.random() < 0.5:
            return f"SELECT {grouped}"
        return f"SELECT count(*) FROM (SELECT {grouped}) q"

    def _having(self) -> str | None:
        found = self._grouped()
        if found is None:
            return None
        columns, source = found
        number = self._chance.choice([1, 1, 2, 3, 5, 10, 20, 50, 100, 500])
        sign = self._chance.choice([">", ">", ">=", "=", "<="])
        grouped = f"{', '.join(columns)}, count(*) AS group_rows {source} GROUP BY {', '.join(columns)}"
        return f"SELECT count(*) FROM (SELECT {grouped} HAVING count(*) {sign} {number}) q"

    def _distinct(self) -> str | None:
        found = self._grouped()
        if found is None:
            return None
        columns, source = found
        chosen = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        if self._chance.random() < 0.5:
            return f"SELECT DISTINCT {chosen} {source}"
        return f"SELECT count(*) FROM (SELECT DISTINCT {chosen} {source}) q"

    def _grouped(self) -> tuple[list[str], str] | None:
        """Return what to group by, and FROM with WHERE."""
        chance = self._chance
        joined = self._grown(chance.choice([1, 1, 2])) if chance.random() < 0.45 else None
        if joined is None:
            joined = Joined()
            joined.add(table := self._table(), self._row(table))
        found = [
            (f"{alias}.{column.name}", column)
            for alias, table in joined.aliases.items()
            for column in table.columns.values()
            if not column.is_long
        ]
        if not found:
            return None
        columns = []
        for name, column in chance.sample(found, min(len(found), chance.choice([1, 1, 1, 2, 2, 3]))):
            if column.is_moment and chance.random() < 0.4:
                name = f"extract({chance.choice(['year', 'month', 'day'])} FROM {name})"
            elif column.is_text and chance.random() < 0.1:
                name = f"substr({name}, 1, {chance.choice([1, 2, 3])})"
            columns.append(name)
        where = self._filters(joined) if chance.random() < 0.8 else []
        return columns, joined.written(where, chance)

    def _window(self) -> str | None:
        chance = self._chance
        table = self._table()
        names = [column.name for column in table.columns.values() if not column.is_long]
        if len(names) < 2:
            return None
        part, order = chance.sample(names, 2)
        over = f"OVER (PARTITION BY a.{part} ORDER BY a.{order})"
        number = chance.choice([1, 1, 2, 3, 10])
        value, test = chance.choice(
            [
                (f"row_number() {over}", f"<= {number}"),
                (f"row_number() {over}", f"= {number}"),
                (f"rank() {over}", f"<= {number}"),
                (f"dense_rank() {over}", f"<= {number}"),
                (f"count(*) OVER (PARTITION BY a.{part})", f"{chance.choice(['>', '<='])} {number}"),
                (f"lag(a.{order}) {over}", "IS NOT NULL"),
            ]
        )
        row = self._row(table) if chance.random() < WITNESSED else None
        where = self._predicates.several(table, "a", chance.choice([1, 2]), row) if chance.random() < 0.7 else []
        filtered = f" WHERE {' AND '.join(where)}" if where else ""
        inner = f"SELECT a.{part}, {value} AS window_value FROM {table.name} a{filtered}"
        if chance.random() < 0.2:
            return inner
        return f"SELECT count(*) FROM ({inner}) q WHERE q.window_value {test}"

    def _correlated(self) -> str | None:
        chance = self._chance
        if not self._schema.joins:
            return None
        join = chance.choice(self._schema.joins)
        outer, inner = self._schema.tables[join.left.table], self._schema.tables[join.right.table]
        pairs = [
            (left, right)
            for left in outer.columns.values()
            for right in inner.columns.values()
            if left.is_number and right.is_number and min(left.ndv, right.ndv) > 2
        ]
        equal = self._equal(join, "a", "b")
        within = self._predicates.several(inner, "b", 1) if chance.random() < 0.4 else []
        where = " AND ".join([equal, *within])
        without = self._predicates.several(outer, "a", 1, self._row(outer)) if chance.random() < 0.6 else []
        if pairs and chance.random() < 0.7:
            alike = [(left, right) for left, right in pairs if left.name == right.name]
            left, right = chance.choice(alike if alike and chance.random() < 0.7 else pairs)
            function, sign = chance.choice([("avg", ">"), ("avg", "<"), ("max", "="), ("min", "<="), ("max", ">=")])
            test = f"a.{left.name} {sign} (SELECT {function}(b.{right.name}) FROM {inner.name} b WHERE {where})"
        else:
            number = chance.choice([0, 1, 1, 2, 5, 10, 50])
            test = f"(SELECT count(*) FROM {inner.name} b WHERE {where}) {chance.choice(['>', '>=', '='])} {number}"
        return f"SELECT count(*) FROM {outer.name} a WHERE {' AND '.join([*without, test])}"

    def _cte(self) -> str | None:
        chance = self._chance
        if not self._schema.joins:
            return None
        join = chance.choice(self._schema.joins)
        first, second = self._schema.tables[join.left.table], self._schema.tables[join.right.table]
        keys = ", ".join(f"a.{column}" for column in join.left.columns)
        row = self._row(first)
        where = " AND ".join(self._predicates.several(first, "a", chance.choice([1, 2]), row))
        equal = " AND ".join(
            f"q.{left} = b.{right}" for left, right in zip(join.left.columns, join.right.columns, strict=True)
        )
        match = self._matching(join, row) if chance.random() < WITNESSED else None
        more = [self._predicates.one(second, "b", match)] if chance.random() < 0.5 else []
        if chance.random() < 0.5:
            within = f"SELECT {keys}, count(*) AS group_rows FROM {first.name} a WHERE {where} GROUP BY {keys}"
            if chance.random() < 0.6:
                more.append(f"q.group_rows {chance.choice(['>', '>=', '='])} {chance.choice([1, 2, 3, 10])}")
        else:
            within = f"SELECT * FROM {first.name} a WHERE {where}"
        used, twice = f"FROM q JOIN {second.name} b ON {equal}", ""
        if chance.random() < 0.3:
            twice = f" JOIN q r ON {' AND '.join(f'q.{column} = r.{column}' for column in join.left.columns)}"
        filtered = f" WHERE {' AND '.join(more)}" if more else ""
        return f"WITH q AS ({within}) SELECT count(*) {used}{twice}{filtered}"

    # Parts

    def _table(self) -> Table:
        """Choose a table: large ones more often."""
        tables = list(self._schema.tables.values())
        return self._chance.choices(tables, [table.rows**0.5 * len(table.columns) ** 0.5 for table in tables])[0]

    def _row(self, table: Table) -> Row:
        return self._chance.choice(table.sample)

    def _pair(self, join: Join) -> Joined:
        joined = Joined()
        table = self._schema.tables[join.left.table]
        first = joined.add(table, self._row(table))
        self._attach(joined, first, join)
        return joined

    def _extend(self, joined: Joined) -> None:
        """Join one table more along a key, where there is one."""
        ends = [
            (alias, join)
            for alias, table in joined.aliases.items()
            for join in self._schema.keys
            if join.left.table == table.name
        ]
        if ends:
            self._attach(joined, *self._chance.choice(ends))

    def _attach(self, joined: Joined, alias: str, join: Join) -> None:
        table = self._schema.tables[join.right.table]
        row = self._matching(join, joined.witness[alias]) or self._row(table)
        new = "abcdefgh"[len(joined.aliases)]
        joined.add(table, row, self._equal(join, alias, new))

    def _matching(self, join: Join, row: Row) -> Row | None:
        values = {right: row[left] for left, right in zip(join.left.columns, join.right.columns, strict=True)}
        return self._schema.tables[join.right.table].matching(values, self._chance)

    def _equal(self, join: Join, left: str, right: str) -> str:
        pairs = zip(join.left.columns, join.right.columns, strict=True)
        return " AND ".join(f"{left}.{one} = {right}.{other}" for one, other in pairs)

    def _filters(self, joined: Joined, least: int = 0) -> list[str]:
        """Return predicates on some of the tables."""
        chance = self._chance
        number = max(least, chance.choice([0, 1, 1, 1, 2, 2, 3, 4]))
        witness = joined.witness if chance.random() < WITNESSED else {}
        aliases = list(joined.aliases)
        return [
            self._predicates.one(joined.aliases[alias], alias, witness.get(alias))
            for alias in (chance.choice(aliases) for _ in range(number))
        ]

    def _counted(self, joined: Joined, where: Sequence[str]) -> str:
        return f"SELECT count(*) {joined.written(where, self._chance)}"


def _repeats(joined: Joined, alias: str, join: Join) -> bool:
    """Tell whether a table is joined to the same key already, so that a further copy of it adds nothing."""
    start = f"{alias}.{join.left.columns[0]} = "
    return any(
        condition.startswith(start) and joined.aliases[other].name == join.right.table
        for other, condition in joined.conditions
    )
