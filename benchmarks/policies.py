"""Claim: what users may see of tables is the same on every engine, and costs a statement little.

Users get random rights, filters and masks. What each may see is written as tables of their own by Spark, from texts
that this module puts together; then small statements made from a seed are asked of the real tables by the user's
rights, and of these copies without rights. The answers have to be equal on DuckDB and on Spark, and what is refused of
one has to be refused of the other.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.both_engines import DEADLINE_S, rows_of
from benchmarks.claim import Claim, at_most, conditions, run_command, show_table, step
from benchmarks.failing_over import FailingOver, failing_over
from benchmarks.generated_queries import queries, write_tables
from engines.compiled import SPARK_WRITER
from engines.duckdb.engine import DuckDBEngine
from engines.errors import EngineError, UnsupportedFeature
from engines.protocol import Engine
from engines.spark.embedded.server import MIB, ServerSettings, SparkConnectServer
from engines.spark.engine import SparkConnectEngine
from gateway.catalog.snapshot import CatalogSnapshot
from gateway.commands import registry
from gateway.commands.classification import Engines, Text
from gateway.commands.command import Family
from gateway.commands.statement_reader import StatementReader
from gateway.execution.parity.comparing import difference
from gateway.planning.fairness import Requester
from gateway.planning.pool import Planners
from gateway.security.access.policy_file import read_access_rules
from gateway.security.access.rules import AccessRules, ColumnMask, Grant, Privilege, RowFilter
from gateway.security.access.user_access import UserAccess
from gateway.security.principals import Principal, Role
from metastore.records import QueryRecord
from selector.quoting import spark_name
from sql.dialects.names import SPARK
from sql.dialects.session_functions import Facts, facts_of
from sql.errors import SqlError
from sql.names import Naming
from sql.parsing import ParserLimits
from sql.statement import CheckedStatement, check
from sql.tables import Column, TableSource

USERS = 20
EXAMPLES = 5  # that are shown of differing answers
DUCKDB_WRITER = DuckDBEngine.writer
LIMITS = ParserLimits()
ENGINES = ("duckdb", "spark")
FILTERS: Mapping[str, tuple[str, ...]] = {
    "items": (
        "n > 0",
        "s IS NULL OR s <> 'abc'",
        "flag",
        "id % 3 = 1",
        "id IN (SELECT item FROM notes WHERE score > 0)",
        "m BETWEEN -1 AND 2 AND is_member('many')",
        "word LIKE concat('%', substring(current_user(), 1, 1), '%') OR id > 20",
    ),
    "notes": ("amount > 0", "tag = 'a' OR tag = 'red'", "note % 2 = 0", "day > DATE '2020-01-01'", "score IS NOT NULL"),
}
MASKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "items": {
        "n": ("NULL", "n % 2", "0", "CASE WHEN is_member('many') THEN n ELSE -1 END"),
        "s": ("NULL", "'***'", "concat(substring(s, 1, 1), '*')", "current_user()"),
        "x": ("0D", "NULL"),
        "m": ("0", "NULL"),
        "d": ("trunc(d, 'YEAR')", "NULL"),
        "big": ("big DIV 10", "NULL"),
    },
    "notes": {"tag": ("'?'", "NULL"), "amount": ("0", "NULL"), "item": ("item % 5", "NULL")},
}
"""Expressions that engines are known to answer alike."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with random rights, and tables of what these let him see."""

    name: str
    access: UserAccess
    groups: frozenset[str]
    copies: tuple[TableSource, ...] = ()

    def facts(self) -> Facts:
        """Return the values of session functions."""
        return facts_of(self.name, SPARK, "default", "benchmark", self.groups)


@dataclass(slots=True)
class Counts:
    """Outcomes of statements. examples: those that differ."""

    outcomes: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


def run(
    statements: Annotated[int, typer.Option(help="Statements on DuckDB.", min=1)] = 10_000,
    on_spark: Annotated[int, typer.Option(help="Statements that are asked of Spark, too.", min=0)] = 1_000,
    seed: Annotated[int, typer.Option(help="Of the users and the statements.")] = 1,
    heap: Annotated[int, typer.Option(help="Spark's heap in MiB.", min=512)] = 1_024,
    failovers: Annotated[int, typer.Option(help="Statements that fail over from DuckDB to Spark.", min=0)] = 1_000,
    rounds: Annotated[int, typer.Option(help="Pairs of timings of reading a statement.", min=1)] = 300,
) -> Claim:
    """Compare answers by rights with answers of copies, on both engines."""
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work:
        tables = write_tables(Path(work) / "tables")
        with _engines(Path(work), heap) as engines:
            step("copies of what each user may see")
            users = [_with_copies(user, tables, engines["spark"], Path(work)) for user in users_of(seed, tables)]
            everything = (*tables, *(copy for user in users for copy in user.copies))
            for engine in engines.values():
                engine.use_tables(everything)
            asked = list(queries(seed, statements))
            counts = _ask_all(users, tables, engines, asked, on_spark)
            counts["failover"] = _fail_over(users, tables, engines["spark"], asked[:failovers], Path(work) / "home")
        overheads = overheads_ms(tables, rounds)
    rows = [[name, *(f"{counts[name].outcomes[outcome]:,}" for outcome in _OUTCOMES)] for name in counts]
    show_table("Statements by rights beside copies", ["engine", *_OUTCOMES], rows)
    for name in counts:
        for example in counts[name].examples[:EXAMPLES]:
            typer.echo(f"  {name}: {example}")
    figures = {
        f"{name}_{outcome.replace(' ', '_')}": float(counts[name].outcomes[outcome])
        for name in counts
        for outcome in _OUTCOMES
    }
    figures |= overheads
    typer.echo(conditions(statements=statements, on_spark=on_spark, failovers=failovers, users=USERS, seed=seed))
    targets = {f"{name}_different": at_most(0) for name in counts} | {**dict.fromkeys(overheads, at_most(1.0))}
    return Claim("policies", figures, targets)


_OUTCOMES = ("equal", "both refused", "both fail", "not written", "handed over", "different", "straight to Spark")


# ---------------------------------------------------------------------- users


def users_of(seed: int, tables: Sequence[TableSource]) -> list[User]:
    """Return users with random rights."""
    users = []
    for number in range(USERS):
        chance = random.Random(f"{seed}/user/{number}")  # noqa: S311 - no secrets
        name, groups = f"user{number}", frozenset(["many"] if chance.random() < 0.5 else [])
        rules = AccessRules(
            version=f"{seed}/{number}",
            closed=("items", "notes"),
            grants=tuple(grant for table in tables for grant in _grants(chance, table)),
            filters=tuple(
                RowFilter((table.name,), chance.choice(FILTERS[table.name]))
                for table in tables
                for _ in range(chance.choice([0, 0, 1, 1, 2]))
            ),
            masks=tuple(
                ColumnMask((table.name,), column, chance.choice(values))
                for table in tables
                for column, values in MASKS[table.name].items()
                if chance.random() < 0.25
            ),
        )
        users.append(User(name, UserAccess(name, name, rules.grantees_of(name, groups), rules), groups))
    return users


def _grants(chance: random.Random, table: TableSource) -> Iterator[Grant]:
    """Yield what a user is granted on a table: nothing, some columns, or all."""
    kind = chance.choice(["none", "columns", "all", "all", "all", "all"])
    if kind == "columns":
        names = frozenset(column.name for column in table.columns if chance.random() < 0.9)
        yield Grant((table.name,), frozenset({"*"}), frozenset({Privilege.SELECT}), names)
    elif kind == "all":
        yield Grant((table.name,), frozenset({"*"}), frozenset({Privilege.SELECT}))


def _with_copies(user: User, tables: Sequence[TableSource], spark: Engine, work: Path) -> User:
    """Return a user with tables of what he may see, written by Spark from texts that know nothing of rights."""
    spark.use_tables(tables)
    copies = []
    for table in tables:
        part = user.access.restriction(table.name, table.columns)
        names = [column.name for column in table.columns] if part is None else list(part.columns)
        if not names:
            continue
        masks = {} if part is None else {name: _with_facts(text, user) for name, text in part.masks.items()}
        types = {column.name: column.data_type for column in table.columns}
        shown = ", ".join(
            f"CAST({masks[name]} AS {types[name]}) AS {name}" if name in masks else spark_name(name) for name in names
        )
        where = " AND ".join(f"({_with_facts(text, user)})" for text in (part.filters if part else ())) or "true"
        rows = rows_of(spark, f"SELECT {shown} FROM {table.name} AS {table.name} WHERE {where}")
        if isinstance(rows, EngineError):
            raise rows
        folder = work / "copies" / user.name / table.name
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "part-0.parquet")
        columns = tuple(Column(name, types[name]) for name in names)
        copies.append(TableSource(f"{user.name}.{table.name}", str(folder), "parquet", columns))
    return replace(user, copies=tuple(copies))


def _with_facts(text: str, user: User) -> str:
    """Put a user's name and groups into a policy's text by hand."""
    member = "true" if "many" in user.groups else "false"
    return text.replace("current_user()", f"'{user.name}'").replace("is_member('many')", member)


# ---------------------------------------------------------------------- answers


def _ask_all(
    users: Sequence[User],
    tables: Sequence[TableSource],
    engines: Mapping[str, Engine],
    statements: Sequence[str],
    on_spark: int,
) -> dict[str, Counts]:
    counts = {engine: Counts() for engine in ENGINES}
    for engine, some in (("duckdb", statements), ("spark", statements[:on_spark])):
        step(f"{len(some):,} statements on {engine}")
        asked = [(users[number % len(users)], sql) for number, sql in enumerate(some)]
        compare = partial(_compare, tables=tables, engine=engines[engine])
        with ThreadPoolExecutor(2) as threads:
            for outcome, example in threads.map(compare, *zip(*asked, strict=True)):
                counts[engine].outcomes[outcome] += 1
                if outcome == "different":
                    counts[engine].examples.append(example)
    return counts


def _compare(user: User, sql: str, tables: Sequence[TableSource], engine: Engine) -> tuple[str, str]:
    """Return the outcome of a statement, and an example of it."""
    by_rights, of_copies = _checked(sql, user, tables), _of_copies(sql, user)
    if isinstance(by_rights, SqlError) or isinstance(of_copies, SqlError):
        same = isinstance(by_rights, SqlError) and isinstance(of_copies, SqlError)
        return ("both refused" if same else "different"), f"{user.name}: {sql}: {by_rights!r} and {of_copies!r}"
    writer = DUCKDB_WRITER if isinstance(engine, DuckDBEngine) else SPARK_WRITER
    try:
        texts = by_rights.sql(writer), of_copies.sql(writer)
    except UnsupportedFeature as error:
        return "not written", error.message
    first, second = (rows_of(engine, text) for text in texts)
    if isinstance(first, UnsupportedFeature) or isinstance(second, UnsupportedFeature):
        return "handed over", ""  # while it ran, to Spark: over which rows that is noticed depends on the plan
    if isinstance(first, EngineError) and isinstance(second, EngineError):
        return "both fail", first.message
    if isinstance(first, EngineError) or isinstance(second, EngineError):
        return "different", f"{user.name}: {sql}: {first!r} and {second!r}"
    differs = difference(first, second)
    return ("equal", "") if differs is None else ("different", f"{user.name}: {sql}: {differs}")


def _fail_over(
    users: Sequence[User], tables: Sequence[TableSource], spark: Engine, statements: Sequence[str], home: Path
) -> Counts:
    """Ask statements of a gateway whose DuckDB runs out of memory with each of them."""
    step(f"{len(statements):,} statements that fail over")
    asked = [(users[number % len(users)], sql) for number, sql in enumerate(statements)]
    with failing_over(home, spark, tables, _rules_of_all(users)) as gateway, ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(partial(_answer, gateway), asked))
    spark.use_tables((*tables, *(copy for user in users for copy in user.copies)))
    counts = Counts()
    for (user, sql), answer in zip(asked, answers, strict=True):
        outcome, why = _beside_copies(answer, _of_copies(sql, user), spark)
        counts.outcomes[outcome] += 1
        if outcome == "different":
            counts.examples.append(f"{user.name}: {sql}: {why}")
    return counts


def _answer(gateway: FailingOver, asked: tuple[User, str]) -> tuple[QueryRecord, pa.Table | None] | SqlError:
    """Return the record of a statement and its rows, None where it failed, or the reason why it is refused."""
    user, sql = asked
    try:
        return gateway.ask(sql, Principal(user.name, Role.READER, True, groups=user.groups))
    except SqlError as error:
        return error


def _beside_copies(
    answer: tuple[QueryRecord, pa.Table | None] | SqlError, of_copies: CheckedStatement | SqlError, spark: Engine
) -> tuple[str, object]:
    """Return the outcome of a statement that failed over, and what differs."""
    if isinstance(answer, SqlError) or isinstance(of_copies, SqlError):
        is_same = isinstance(answer, SqlError) and isinstance(of_copies, SqlError)
        return ("both refused" if is_same else "different"), answer
    record, rows = answer
    expected = rows_of(spark, of_copies.sql(SPARK_WRITER))
    if rows is None or isinstance(expected, EngineError):
        return ("both fail" if rows is None and isinstance(expected, EngineError) else "different"), expected
    differs = difference(rows, expected)
    if differs is not None:
        return "different", differs
    return ("equal" if len(record.attempts) > 1 else "straight to Spark"), ""


def _rules_of_all(users: Sequence[User]) -> AccessRules:
    """Return one policy with the rules of each user, for this user alone."""
    every = [(frozenset({f"user:{user.name}"}), user.access.rules) for user in users]
    return AccessRules(
        version="all",
        closed=every[0][1].closed,
        grants=tuple(replace(grant, to=to) for to, rules in every for grant in rules.grants),
        filters=tuple(replace(rule, to=to) for to, rules in every for rule in rules.filters),
        masks=tuple(replace(mask, to=to) for to, rules in every for mask in rules.masks),
    )


def _checked(sql: str, user: User, tables: Sequence[TableSource]) -> CheckedStatement | SqlError:
    catalog = {table.name: table for table in tables}
    try:
        return check(sql, SPARK, catalog=catalog, limits=LIMITS, access=user.access, facts=user.facts())
    except SqlError as error:
        return error


def _of_copies(sql: str, user: User) -> CheckedStatement | SqlError:
    catalog = {table.name: table for table in user.copies}
    naming = Naming(user.name, frozenset({"default", user.name}))
    try:
        return check(sql, SPARK, catalog=catalog, limits=LIMITS, naming=naming, facts=user.facts())
    except SqlError as error:
        return error


@contextmanager
def _engines(work: Path, heap: int) -> Iterator[Mapping[str, Engine]]:
    """Start both engines, and end them."""
    server = SparkConnectServer(ServerSettings(work_folder=work / "spark", driver_memory_bytes=heap * MIB))
    duckdb = DuckDBEngine(workers=2, threads=1)
    spark = SparkConnectEngine(server)
    try:
        yield {"duckdb": duckdb, "spark": spark}
    finally:
        spark.close()
        duckdb.close()
        server.stop()


# ---------------------------------------------------------------------- overhead

JOINED = (
    "SELECT a.id, b.tag, count(*) AS n FROM items a JOIN notes b ON a.id = b.item JOIN more c ON c.id = a.id "
    "WHERE a.n > 0 AND b.amount > 1 GROUP BY a.id, b.tag"
)
THREE = b"""
[[filter]]
on = ["items", "more"]
where = "n > -100"
[[filter]]
on = "notes"
where = "tag = 'a' OR is_member('many')"
[[mask]]
on = ["items", "more"]
column = "s"
value = "concat('*', right(s, 1))"
"""


def overheads_ms(tables: Sequence[TableSource], rounds: int) -> dict[str, float]:
    """Return by how much longer a join of three restricted tables is read, the first time and again: medians, in ms."""
    tables = (*tables, replace(tables[0], name="more"))
    rules = read_access_rules(THREE)
    access = UserAccess("ann", "ann", rules.grantees_of("ann", ()), rules)
    catalog = CatalogSnapshot(1, {table.name: table for table in tables})
    families: tuple[Family, ...] = registry.FAMILIES
    requester = Requester("ann", time.monotonic() + DEADLINE_S)
    with closing(Planners(size=1, cpu_s=DEADLINE_S, wait_s=DEADLINE_S)) as planners:
        reader = StatementReader(planners, Engines((SPARK_WRITER, DUCKDB_WRITER), {}), families)

        def seconds(sql: str, rights: UserAccess | None) -> float:
            start_s = time.perf_counter()
            reader.classify(Text(sql, SPARK, LIMITS, user="ann", access=rights), catalog, requester)
            return time.perf_counter() - start_s

        first, again = list[float](), list[float]()
        for number in range(rounds):
            sql = JOINED.replace("> 1", f"> {number}")
            for added in (first, again):
                pair = [(rights, seconds(sql, rights)) for rights in ((access, None), (None, access))[number % 2]]
                added.append(sum(took_s if rights else -took_s for rights, took_s in pair))
    return {"first_added_ms": 1_000 * statistics.median(first), "again_added_ms": 1_000 * statistics.median(again)}


if __name__ == "__main__":
    run_command(run)
