"""Claim: rows of a five-table join are estimated in 2 ms, and time grows less than with the square of a statement.

Statements are plans over generated tables whose statistics the job's own summaries make: with more and more joins
(a star, a chain, one key), conditions, IN values, and references to one common table expression. No two of them name
the same constants, so that nothing is answered because the same text was seen; what belongs to the statistics and the
joins is known, as in a gateway that runs. Time is of the processor.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from benchmarks.bookstore import SEED, SeedOption
from benchmarks.claim import Claim, Target, at_most, conditions, run_command, show_table, step
from selector.cardinality.tree import estimate_rows
from selector.join_keys import ColumnRef, KeyPair, key_groups
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode
from selector.statistics import TableStatistics
from statsproc.read.files import TableChunk
from statsproc.read.task import Wanted, summarise_chunks
from statsproc.sketches.column_summary import describe
from statsproc.sketches.join_keys import Cut, cut_keys, describe_key
from statsproc.sketches.sample import row_sample, rows_wanted
from statsproc.sketches.table_summary import TableSummary

DIALECT = "duckdb"
REPEATS = 15
WARM_UP = 3
FACT_ROWS, DIMENSION_ROWS = 400_000, 60_000
MOST_JOINS = 16
FIVE_TABLES_MS = 2.0
GROWTH = 2.0  # power of the size: what is quadratic has it
MS = 1_000.0
BAR_MS, MOST_SIGNS = 0.5, 80  # of time per sign, and signs per line

Statement = Callable[[int], PlanNode]  # for a size; each call with other constants
JOINS = (1, 2, 4, 8, MOST_JOINS)
AXES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "star": ("joins", JOINS),
    "chain": ("joins", JOINS),
    "one_key": ("joins", JOINS),
    "conditions": ("conditions", (1, 4, 16, 64, 256)),
    "conditions_of_one_column": ("conditions", (1, 4, 16, 64, 256)),
    "in_values": ("values", (1, 10, 100, 1000, 10_000)),
    "or_values": ("values", (1, 10, 100, 1000)),
    "references": ("references", (1, 2, 4, 8, 16)),
}


def run(
    seed: SeedOption = SEED,
    repeats: Annotated[int, typer.Option(help="Statements per size.", min=1)] = REPEATS,
) -> Claim:
    """Measure how long rows of larger and larger statements take."""
    step("statistics of the generated tables")
    statistics = described(seed)
    where = conditions(seed=seed, repeats=repeats, fact_rows=FACT_ROWS, dimension_rows=DIMENSION_ROWS)
    statements = Statements(seed)
    figures: dict[str, float] = {}
    targets: dict[str, Target] = {}
    for name, (unit, sizes) in AXES.items():
        step(f"{name}: {', '.join(map(str, sizes))} {unit}")
        taken = {size: median_ms(getattr(statements, name), size, statistics, repeats) for size in sizes}
        figures |= {f"{name}.{size}_ms": ms for size, ms in taken.items()}
        figures[f"{name}.growth"] = growth(taken)
        targets[f"{name}.growth"] = at_most(GROWTH)
        title = f"{name.replace('_', ' ')}: time grows with the power {growth(taken):.2f} of {unit}"
        show_table(title, [unit, "ms", ""], [[str(n), f"{ms:.2f}", bar(ms)] for n, ms in taken.items()])
    targets["star.4_ms"] = at_most(FIVE_TABLES_MS)
    print(where)
    return Claim("estimate_speed", figures, targets)


def median_ms(statement: Statement, size: int, statistics: Mapping[str, TableStatistics], repeats: int) -> float:
    """Return the median milliseconds of the processor that statements of a size take, each with other constants."""
    taken = []
    for _ in range(WARM_UP + repeats):
        plan = Plan(statement(size), DIALECT)
        begun = time.thread_time()
        estimate_rows(plan, statistics, ())
        taken.append(time.thread_time() - begun)
    return float(np.median(taken[WARM_UP:])) * MS


def growth(taken: Mapping[int, float]) -> float:
    """Return the power of the size with which time grows, between the two largest. taken: milliseconds by size."""
    (small, before), (large, after) = sorted(taken.items())[-2:]
    return math.log(after / before) / math.log(large / small)


def bar(ms: float) -> str:
    """Draw a time, as far as the line goes."""
    signs = round(ms / BAR_MS)
    return "#" * signs if signs <= MOST_SIGNS else "#" * (MOST_SIGNS - 1) + ">"


def described(seed: int) -> dict[str, TableStatistics]:
    """Return statistics of a large table with many keys, and of a smaller one that they refer to."""
    draws = np.random.default_rng(seed)
    keys = [f"k{number}" for number in range(MOST_JOINS)]
    fact = pa.table(
        {
            **{key: (DIMENSION_ROWS * draws.random(FACT_ROWS) ** 2).astype(np.int64) for key in keys},
            "price": draws.integers(0, 100_000, FACT_ROWS),
            "day": draws.integers(0, 2_000, FACT_ROWS),
        }
    )
    dimension = pa.table(
        {
            "id": np.arange(DIMENSION_ROWS),
            "parent": (DIMENSION_ROWS * draws.random(DIMENSION_ROWS) ** 2).astype(np.int64),
            "kind": draws.integers(0, 1_000, DIMENSION_ROWS),
        }
    )
    tables = {"fact": (fact, keys), "dimension": (dimension, ["id", "parent"])}
    ids = ColumnRef("dimension", "id")
    pairs = [KeyPair.of(ids, ColumnRef("fact", key)) for key in keys] + [
        KeyPair.of(ids, ColumnRef("dimension", "parent"))
    ]
    first = {name: _summary(table, Wanted(_types(table), tuple(keys))) for name, (table, keys) in tables.items()}
    found = {}
    for group, members in key_groups(pairs).items():
        bins = cut_keys([first[one.table].keys[one.column] for one in members], group)
        for name, (table, _) in tables.items():
            cut = Cut({one.column: bins for one in members if one.table == name and bins is not None})
            share = min(1.0, rows_wanted(table.num_columns) / table.num_rows)
            whole = _summary(table, Wanted(_types(table), tuple(cut.bins), cut, share, share))
            found[name] = TableStatistics(
                table=name,
                version=1,
                rows=table.num_rows,
                bytes=table.nbytes,
                columns={
                    column: describe(whole.columns[column], column, kind) for column, kind in _types(table).items()
                },
                sample=row_sample(whole.sample),
                keys={key: describe_key(whole.keys[key], key, cut) for key in cut.bins},
            )
    return found


def _types(table: pa.Table) -> dict[str, str]:
    return dict.fromkeys(table.column_names, "bigint")


def _summary(table: pa.Table, wanted: Wanted) -> TableSummary:
    return dict(summarise_chunks([TableChunk("data", "", table)], wanted))[""]


class Statements:
    """Plans of any size; each one names constants that no other one does."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)  # noqa: S311
        self._scans: Iterator[int] = itertools.count(1)

    def star(self, joins: int) -> PlanNode:
        """Join a large table with others, each by a key of its own."""
        fact = self._fact(f"(price < {self._below(100_000)})")
        found = fact
        for number in range(joins):
            found = self._joined(found, self._column("fact", f"k{number}", fact), self._dimension(), "id")
        return found

    def chain(self, joins: int) -> PlanNode:
        """Join each table with the one before."""
        found = last = self._dimension()
        for _ in range(joins):
            below = last
            last = self._dimension()
            found = self._joined(found, self._column("dimension", "parent", below), last, "id")
        return found

    def one_key(self, joins: int) -> PlanNode:
        """Join all tables by one key."""
        fact = self._fact(f"(price < {self._below(100_000)})")
        found = fact
        for _ in range(joins):
            found = self._joined(found, self._column("fact", "k0", fact), self._dimension(), "id")
        return found

    def conditions(self, count: int) -> PlanNode:
        """Filter a table by many conditions that are no domain."""
        texts = (f"((day % {self._below(900) + 2}) <> {self._below(100)})" for _ in range(count))
        return self._fact(*texts)

    def conditions_of_one_column(self, count: int) -> PlanNode:
        """Filter a table by many conditions on one column."""
        return self._fact(*(f"(price <> {self._below(100_000)})" for _ in range(count)))

    def in_values(self, count: int) -> PlanNode:
        """Filter a table by a list of values."""
        return self._fact(f"(price IN ({', '.join(str(self._below(100_000)) for _ in range(count))}))")

    def or_values(self, count: int) -> PlanNode:
        """Filter a table by a list of values, as engines write short ones."""
        return self._fact(f"({' OR '.join(f'(price = {self._below(100_000)})' for _ in range(count))})")

    def references(self, count: int) -> PlanNode:
        """Read a join of two tables many times."""
        shared = self.star(1)
        reads = tuple(
            PlanNode(Operator.OTHER, "CTE_SCAN", reference="shared", columns=shared.columns) for _ in range(count)
        )
        body = PlanNode(Operator.UNION, "UNION", reads, columns=shared.columns)
        return PlanNode(Operator.MATERIALIZE, "CTE", (shared, body), columns=body.columns, reference="shared")

    def _below(self, number: int) -> int:
        return self._draws.randrange(number)

    def _fact(self, *predicates: str) -> PlanNode:
        return self._scan("fact", [*(f"k{number}" for number in range(MOST_JOINS)), "price", "day"], predicates)

    def _dimension(self) -> PlanNode:
        low = self._below(500)
        return self._scan("dimension", ["id", "parent", "kind"], [f"((kind >= {low}) AND (kind <= {low + 400}))"])

    def _scan(self, table: str, names: Sequence[str], predicates: Sequence[str]) -> PlanNode:
        scan = next(self._scans)
        columns = tuple(PlanColumn(name, "bigint", table, scan) for name in names)
        return PlanNode(
            Operator.SCAN,
            "SCAN",
            columns=columns,
            table=table,
            scanned=columns,
            predicates=tuple(predicates),
            scan=scan,
        )

    def _column(self, table: str, name: str, scan: PlanNode) -> PlanColumn:
        return PlanColumn(name, "bigint", table, scan.scan)

    def _joined(self, left: PlanNode, key: PlanColumn, right: PlanNode, name: str) -> PlanNode:
        return PlanNode(
            Operator.HASH_JOIN,
            "HASH_JOIN",
            (left, right),
            columns=(*left.columns, *right.columns),
            join_type=JoinType.INNER,
            join_keys=((key, self._column(right.table or "", name, right)),),
        )


if __name__ == "__main__":
    run_command(run)
