"""Predicates over tables that are there: constants, ranges, lists and patterns come from rows.

Most of what is asked for is in the table, and often rows that are frequent: a constant is a random row's value more
often than a random distinct one. Predicates that one random row keeps all hold at once, as those of a person do who
looks for something; others are drawn column by column. The same seed makes the same predicates.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import duckdb

SAMPLED = 2_000  # rows and distinct values that constants come from
RARE = 0.3  # share of constants that are a random distinct value's
IN_LIST = (2, 3, 3, 4, 5, 8, 30)  # how many values
LONG = 40  # characters: longer texts are searched, not compared

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a table. rows: of the table; ndv: how many distinct values."""

    name: str
    data_type: str
    rows: int
    ndv: int
    nulls: int
    distinct: Sequence[Any]

    @property
    def is_text(self) -> bool:
        """Tell whether it is a string."""
        return self.data_type == "VARCHAR"

    @property
    def is_moment(self) -> bool:
        """Tell whether it is a day, or a moment."""
        return self.data_type == "DATE" or self.data_type.startswith("TIMESTAMP")

    @property
    def is_number(self) -> bool:
        """Tell whether it can be computed with."""
        return not (self.is_text or self.is_moment or self.data_type == "BOOLEAN")

    @property
    def is_long(self) -> bool:
        """Tell whether it is a text that nobody would compare as a whole."""
        return self.is_text and any(len(str(value)) > LONG for value in self.distinct[:50])

    def comparable(self, other: Column) -> bool:
        """Tell whether a value of one may be less than one of the other."""
        alike = ("is_text", "is_moment", "is_number")
        return any(getattr(self, name) and getattr(other, name) for name in alike)


class Table:
    """A table, its columns, and random rows of it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.name = name
        self._connection = connection
        types = {column[0]: str(column[1]) for column in connection.execute(f"DESCRIBE {name}").fetchall()}
        counts = ", ".join(f'count(DISTINCT "{column}"), count("{column}")' for column in types)
        rows, *found = self._all(f"SELECT count(*), {counts} FROM {name}")[0]
        self.rows = int(rows)
        self.columns = {
            column: Column(column, kind, self.rows, ndv, self.rows - filled, self._distinct(column))
            for (column, kind), ndv, filled in zip(types.items(), found[::2], found[1::2], strict=True)
        }

    @cached_property
    def sample(self) -> list[Row]:
        """Return random whole rows."""
        names = list(self.columns)
        rows = self._all(f"SELECT * FROM {self.name} ORDER BY hash(rowid), rowid LIMIT {SAMPLED}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def matching(self, values: Row, chance: random.Random) -> Row | None:
        """Return a random row with these values, None where there is none."""
        if any(value is None for value in values.values()):
            return None
        wanted = " AND ".join(f'"{column}" = {literal(value)}' for column, value in values.items())
        salt = chance.randrange(1 << 30)
        sql = f"SELECT * FROM {self.name} WHERE {wanted} ORDER BY hash(rowid, {salt}), rowid LIMIT 1"
        return next((dict(zip(self.columns, row, strict=True)) for row in self._all(sql)), None)

    def is_unique(self, columns: Sequence[str]) -> bool:
        """Tell whether no two rows have the same values there."""
        key = ", ".join(f'"{column}"' for column in columns)
        filled = " AND ".join(f'"{column}" IS NOT NULL' for column in columns)
        keys = f"SELECT DISTINCT {key} FROM {self.name} WHERE {filled}"
        counts = self._all(f"SELECT (SELECT count(*) FROM {self.name} WHERE {filled}), (SELECT count(*) FROM ({keys}))")
        return bool(counts[0][0] == counts[0][1])

    def _distinct(self, column: str) -> list[Any]:
        named = f'SELECT DISTINCT "{column}" AS v FROM {self.name} WHERE "{column}" IS NOT NULL'
        return [row[0] for row in self._all(f"SELECT v FROM ({named}) ORDER BY hash(v), v LIMIT {SAMPLED}")]

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()


def literal(value: object) -> str:
    """Write a value as SQL that DuckDB and PostgreSQL read alike."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return str(value)
        case float():
            return repr(value)
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise TypeError(f"no constant: {value!r}")


class Predicates:
    """Makes predicates of one seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def one(self, table: Table, alias: str, row: Row | None = None, columns: Sequence[str] | None = None) -> str:
        """Return a predicate on one column; a row is one that it keeps. columns: those to choose from."""
        chance = self._chance
        names = list(columns or table.columns)
        column = table.columns[chance.choice(names)]
        drawn = (row or chance.choice(table.sample))[column.name]
        name = f"{alias}.{column.name}"
        if drawn is None or not column.distinct or _unwritable(drawn):
            return f"{name} IS {'' if row is not None or chance.random() < 0.5 else 'NOT '}NULL"
        if (column.nulls and chance.random() < 0.07) or chance.random() < 0.02:
            return f"{name} IS NOT NULL"
        value = chance.choice(column.distinct) if row is None and chance.random() < RARE else drawn
        if column.data_type == "BOOLEAN":
            return f"{name} = {literal(value)}"
        made = self._of_text(name, column, value) if column.is_text else self._of_number(name, column, value)
        if row is None and chance.random() < 0.04:
            return f"NOT ({made})"
        return made

    def several(self, table: Table, alias: str, number: int, row: Row | None = None) -> list[str]:
        """Return predicates on different columns, now and then an alternative or two columns compared."""
        chance = self._chance
        names = chance.sample(list(table.columns), min(number, len(table.columns)))
        made = [self.one(table, alias, row, [name]) for name in names]
        if chance.random() < 0.15:
            at = chance.randrange(len(made))
            made[at] = f"({made[at]} OR {self.one(table, alias)})"
        pairs = [
            (left, right)
            for left in table.columns.values()
            for right in table.columns.values()
            if left is not right and left.comparable(right) and not (left.is_long or right.is_long)
        ]
        if pairs and chance.random() < 0.1:
            left, right = chance.choice(pairs)
            made.append(f"{alias}.{left.name} {chance.choice(['<', '<', '=', '>='])} {alias}.{right.name}")
        return made

    def on_key(self, table: Table, alias: str, column: str, row: Row | None) -> str:
        """Return a predicate that a join's other side takes over: a constant, a list or a range."""
        found = table.columns[column]
        value = (row or self._chance.choice(table.sample))[column]
        if value is None or _unwritable(value):
            value = self._chance.choice(found.distinct)
        name = f"{alias}.{column}"
        makers = [self._equal, self._equal, self._listed, self._listed, self._beyond, self._between]
        return self._chance.choice(makers)(name, found, value)

    def _of_text(self, name: str, column: Column, value: str) -> str:
        weighted: dict[Callable[[str, Column, Any], str], float] = {
            self._prefix: 1.5,
            self._contains: 1.5,
            self._unlike: 0.4,
            self._long: 0.3,
        }
        if not column.is_long:
            weighted |= {
                self._equal: 3.0,
                self._listed: 2.0,
                self._different: 0.4,
                self._unlisted: 0.3,
                self._beyond: 0.5,
                self._between: 0.3,
                self._folded: 0.3,
                self._start: 0.3,
            }
        return self._weighted(weighted)(name, column, value)

    def _of_number(self, name: str, column: Column, value: Any) -> str:
        weighted: dict[Callable[[str, Column, Any], str], float] = {
            self._equal: 2.5 if column.ndv < SAMPLED else 0.8,
            self._beyond: 3.0,
            self._between: 2.5,
            self._listed: 1.5 if column.ndv < SAMPLED else 0.4,
            self._different: 0.4,
            self._unlisted: 0.2,
        }
        if column.is_moment:
            weighted |= {self._part: 0.8}
        elif column.ndv > 2:
            weighted |= {self._computed: 0.3}
        return self._weighted(weighted)(name, column, value)

    def _weighted(self, makers: Mapping[Callable[[str, Column, Any], str], float]) -> Callable[[str, Column, Any], str]:
        return self._chance.choices(list(makers), list(makers.values()))[0]

    def _equal(self, name: str, column: Column, value: Any) -> str:
        return f"{name} = {literal(value)}"

    def _different(self, name: str, column: Column, value: Any) -> str:
        return f"{name} <> {literal(self._other(column, value))}"

    def _listed(self, name: str, column: Column, value: Any) -> str:
        return f"{name} IN ({', '.join(self._list(column, value))})"

    def _unlisted(self, name: str, column: Column, value: Any) -> str:
        return f"{name} NOT IN ({', '.join(self._list(column, self._other(column, value)))})"

    def _beyond(self, name: str, column: Column, value: Any) -> str:
        sign = self._chance.choice(["<=", ">=", "<=", ">=", "<", ">"])
        return f"{name} {sign} {literal(value)}"

    def _between(self, name: str, column: Column, value: Any) -> str:
        low, high = sorted((value, self._other(column, value)))
        if self._chance.random() < 0.5 and not column.is_text:
            return f"{name} >= {literal(low)} AND {name} <= {literal(high)}"
        return f"{name} BETWEEN {literal(low)} AND {literal(high)}"

    def _prefix(self, name: str, column: Column, value: str) -> str:
        part = _plain(value)[: self._chance.choice([1, 2, 3, 4, 6])]
        return f"{name} LIKE {literal(part + '%')}"

    def _contains(self, name: str, column: Column, value: str) -> str:
        text = _plain(value)
        words = [word for word in text.split() if len(word) > 2]
        if words and self._chance.random() < 0.6:
            part = self._chance.choice(words)
        else:
            begin = self._chance.randrange(max(1, len(text) - 2))
            part = text[begin : begin + self._chance.choice([2, 3, 4])]
        return f"{name} LIKE {literal('%' + part + '%')}"

    def _unlike(self, name: str, column: Column, value: str) -> str:
        return self._contains(name, column, self._other(column, value)).replace(" LIKE ", " NOT LIKE ", 1)

    def _long(self, name: str, column: Column, value: str) -> str:
        return f"length({name}) {self._chance.choice(['=', '<=', '>='])} {len(value)}"

    def _folded(self, name: str, column: Column, value: str) -> str:
        function = self._chance.choice(["lower", "upper"])
        return f"{function}({name}) = {function}({literal(value)})"

    def _start(self, name: str, column: Column, value: str) -> str:
        return f"substr({name}, 1, 2) = {literal(value[:2])}"

    def _part(self, name: str, column: Column, value: dt.date) -> str:
        part = self._chance.choice(["year", "month", "day"])
        return f"extract({part} FROM {name}) = {getattr(value, part)}"

    def _computed(self, name: str, column: Column, value: Any) -> str:
        factor = self._chance.randrange(2, 9)
        return f"{name} * {factor} {self._chance.choice(['<', '>='])} {literal(value * factor)}"

    def _list(self, column: Column, value: Any) -> list[str]:
        values = {literal(value)}
        values |= {literal(self._other(column, value)) for _ in range(self._chance.choice(IN_LIST) - 1)}
        return sorted(values)

    def _other(self, column: Column, value: Any) -> Any:
        other = self._chance.choice(column.distinct)
        return value if _unwritable(other) else other


def _plain(text: str) -> str:
    """Return the longest part of a text that means itself in a pattern."""
    for special in "%_\\":
        text = max(text.split(special), key=len)
    return text


def _unwritable(value: object) -> bool:
    """Tell whether a value cannot stand in a statement of both engines."""
    return (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, str) and "\0" in value)
