"""Conditions of a PARTITION clause, in whatever statement it stands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import TokenType

from engines.files.listing import DEFAULT_PARTITION
from gateway.commands.grammar.reader import Reader
from metastore.records import Partition
from selector.types import WHOLE
from sql.errors import NotAllowed, Position, UnknownColumn, ValueOutOfRange
from sql.tables import TableSource

Test = Callable[[Any, Any], bool]

_COMPARISONS: Mapping[TokenType, Test] = {
    TokenType.EQ: operator.eq,
    TokenType.NEQ: operator.ne,
    TokenType.LT: operator.lt,
    TokenType.LTE: operator.le,
    TokenType.GT: operator.gt,
    TokenType.GTE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on one partition column. value: None is NULL. position: of the column's name."""

    column: str
    test: Test
    value: int | str | None
    position: Position

    @property
    def is_equality(self) -> bool:
        """Tell whether it asks for one value."""
        return self.test is operator.eq

    def holds(self, values: Mapping[str, str]) -> bool:
        """Tell whether a partition with some values is meant; no comparison with a value holds for NULL."""
        text = values[self.column]
        if self.value is None:
            return self.test(text, DEFAULT_PARTITION)
        return text != DEFAULT_PARTITION and self.test(int(text) if isinstance(self.value, int) else text, self.value)


def matching(partitions: Iterable[Partition], conditions: Sequence[Condition]) -> tuple[Partition, ...]:
    """Return the partitions for which all conditions hold."""
    return tuple(one for one in partitions if all(condition.holds(one.values) for condition in conditions))


def partition_conditions(reader: Reader, table: TableSource, *, values_needed: bool = True) -> tuple[Condition, ...]:
    """Read PARTITION with its conditions; where no values are needed, a column may stand without one."""
    start = reader.peek()
    reader.expect("PARTITION")
    require_partitions(table, reader.position(start))
    reader.expect_open()
    conditions = [_condition(reader, table, value_needed=values_needed)]
    while reader.accept_sign(TokenType.COMMA) or reader.accept("AND"):
        conditions.append(_condition(reader, table, value_needed=values_needed))
    reader.expect_close()
    return tuple(condition for condition in conditions if condition is not None)


def require_partitions(table: TableSource, position: Position) -> None:
    """Raise NotAllowed for a table without partition columns."""
    if table.format == "iceberg" and not table.partition_columns:
        raise NotAllowed(
            f"Partitions of the Iceberg table {table.name} are hidden, and found by conditions on its columns; the "
            f"table {table.name}.partitions lists them.",
            position,
        )
    if not table.partition_columns:
        raise NotAllowed(f"The table {table.name} is not partitioned.", position)


def _condition(reader: Reader, table: TableSource, *, value_needed: bool) -> Condition | None:
    token = reader.peek()
    column = reader.column(table)
    position = reader.position(token)
    if column not in table.partition_columns:
        names = ", ".join(table.partition_columns)
        raise UnknownColumn(f"{column} is not a partition column; those are {names}.", position)
    if reader.accept("IS"):
        test: Test = operator.ne if reader.accept("NOT") else operator.eq
        reader.expect("NULL")
        return Condition(column, test, None, position)
    sign = reader.peek()
    if not value_needed and sign.token_type in (TokenType.COMMA, TokenType.R_PAREN):
        return None
    if sign.token_type not in _COMPARISONS:
        reader.unexpected("a comparison")
    reader.accept_sign(sign.token_type)
    data_type = next(one.data_type for one in table.columns if one.name == column)
    return Condition(column, _COMPARISONS[sign.token_type], _value(reader, data_type), position)


def _value(reader: Reader, data_type: str) -> int | str | None:
    if reader.accept("NULL"):
        return None
    token = reader.peek()
    text = reader.literal()
    if data_type not in WHOLE:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueOutOfRange(f"{text} is not a whole number.", reader.position(token)) from None
