"""Statistics that are set by hand.

ALTER TABLE t SET TBLPROPERTIES ('numRows' = 'n')      ALTER TABLE t SET COLUMN STATS c ('numDVs' = 'n', ...)

The first form stands among other properties, which ``ddl/properties.py`` reads.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from sqlglot.tokenizer_core import TokenType

from gateway.commands.command import StatisticsCommand, TableCommand, summary
from gateway.commands.grammar.reader import Reader
from gateway.commands.services import CommandServices
from gateway.errors import NothingToAmend
from gateway.security.policy import Action
from metastore import errors as metastore_errors
from sql.errors import UnknownProperty, ValueOutOfRange

ROWS_KEY = "numRows"
MARK_KEY = (
    "STATS_GENERATED_VIA_STATS_TASK"  # Impala's users set it beside numRows for Hive's sake; it says nothing here
)
COLUMN_KEYS: Mapping[str, str] = {  # Impala's name -> the statistics' own
    "numDVs": "ndv",
    "numNulls": "nulls",
    "avgSize": "average_length",
    "maxSize": "maximum_length",
}
LARGEST = 2.0**63  # of whole numbers, not to be reached
WHOLE_NUMBERS = frozenset({ROWS_KEY, "numDVs", "numNulls", "maxSize"})


@dataclass(frozen=True, slots=True)
class SetRows(StatisticsCommand, TableCommand):
    """Set the number of a table's rows."""

    table: str
    rows: int

    table_action = Action.CHANGE_STATISTICS

    def run(self, services: CommandServices) -> pa.Table:
        """Set it."""
        _amend(services, self.table, rows=self.rows)
        return summary("Updated table.")


@dataclass(frozen=True, slots=True)
class SetColumnStats(StatisticsCommand, TableCommand):
    """Set statistics of one column, under the names that they have in the metastore."""

    table: str
    column: str
    values: Mapping[str, float]

    table_action = Action.CHANGE_STATISTICS

    def run(self, services: CommandServices) -> pa.Table:
        """Set them."""
        _amend(services, self.table, columns={self.column: self.values})
        return summary("Updated 0 partition(s) and 1 column(s).")


def _amend(
    services: CommandServices, table: str, *, rows: int | None = None, columns: Mapping[str, Mapping[str, float]] = {}
) -> None:
    try:
        services.metastore.statistics.amend(table, at=dt.datetime.now(dt.UTC), rows=rows, columns=columns)
    except metastore_errors.NothingToAmend as error:
        raise NothingToAmend(f"{str(error).capitalize()}.") from error


# ---------------------------------------------------------------------- grammar


def parse(reader: Reader) -> SetColumnStats | None:
    """Read ALTER TABLE ... SET COLUMN STATS, with Impala's names."""
    subject = reader.altered()
    if subject is None or subject.table is None or not reader.accept("SET", "COLUMN", "STATS"):
        return None
    column = reader.column(subject.table)
    reader.expect_open()
    return SetColumnStats(subject.name, column, dict(reader.rest_of_list(partial(_column_figure, reader))))


def _column_figure(reader: Reader) -> tuple[str, float]:
    token = reader.peek()
    name = reader.text("the name of a property")
    key = next((key for key in COLUMN_KEYS if key.lower() == name.lower()), None)
    if key is None:
        raise UnknownProperty(f"{name} cannot be set; {', '.join(COLUMN_KEYS)} can.", reader.position(token))
    return COLUMN_KEYS[key], read_figure(reader, key)


def read_figure(reader: Reader, key: str) -> float:
    """Read ``= value`` behind the name of a statistic."""
    reader.expect_sign(TokenType.EQ, "=")
    token = reader.peek()
    text = reader.literal()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < LARGEST or (key in WHOLE_NUMBERS and value != int(value)):
        kind = "a whole number" if key in WHOLE_NUMBERS else "a number"
        raise ValueOutOfRange(f"{key} is {kind} of at least 0, not {text}.", reader.position(token))
    return value
