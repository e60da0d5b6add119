"""What every engine must do, whatever is behind it.

An engine's test module inherits ``Conformance`` and supplies the fixture ``engine``, and ``spare_engine``, one
that a test may close; where they can be had, also ``mortal``, one that a test may kill, and ``stranger``, one that
is not let in. Everything goes through the protocol; the SQL is what all dialects have in common. An adapter from
elsewhere is tested the same way: the suite needs nothing of this repository but ``engines`` and this file.

It is one long file because it is one list: what is asked of an engine can be read from top to bottom.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from engines.protocol import Elastic, Engine, EngineKind, ResultStream, Watch, unwatched
from engines.protocol import Lease as EngineLease
from sql.tables import Column, TableSource

LEASE = EngineLease(memory_bytes=512 * 1024 * 1024)
DEADLINE_S = 120.0
SOON_S = 10.0
FREED_WITHIN_S = 60.0  # some engines look once per batch whether they are to stop; left alone, it would take hours

UTC = dt.UTC
NAN, INFINITY = float("nan"), float("inf")

KINDS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "flag": ("boolean", pa.bool_(), [True, False, None, True, False]),
    "tiny": ("tinyint", pa.int8(), [-128, 127, None, 0, 1]),
    "small": ("smallint", pa.int16(), [-32768, 32767, None, 0, 1]),
    "whole": ("int", pa.int32(), [-(2**31), 2**31 - 1, None, 0, 1]),
    "big": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, None, 0, 1]),
    "single": ("float", pa.float32(), [-1.5, INFINITY, None, NAN, 0.25]),
    "double_": ("double", pa.float64(), [-INFINITY, 1e300, None, NAN, 0.1]),
    "money": (
        "decimal(10,2)",
        pa.decimal128(10, 2),
        [Decimal("-99999999.99"), Decimal("99999999.99"), None, Decimal("0.00"), Decimal("0.01")],
    ),
    "exact": (
        "decimal(38,10)",
        pa.decimal128(38, 10),
        [
            Decimal("-" + "9" * 28 + ".9999999999"),
            Decimal("9" * 28 + ".9999999999"),
            None,
            Decimal("0.0000000000"),
            Decimal("0.0000000001"),
        ],
    ),
    "wide": (
        "decimal(38,0)",
        pa.decimal128(38, 0),
        [Decimal("-" + "9" * 38), Decimal("9" * 38), None, Decimal(0), Decimal(1)],
    ),
    "deep": (
        "decimal(38,38)",
        pa.decimal128(38, 38),
        [Decimal("-0." + "9" * 38), Decimal("0." + "9" * 38), None, Decimal("0." + "0" * 38), Decimal("1e-38")],
    ),
    "name": ("string", pa.string(), ["", "Ünïcödé ☃ 書籍", None, "longer than twelve bytes", "a'b\"c`d\\e\n"]),
    "raw": ("binary", pa.binary(), [b"", b"\x00\xff\x80", None, b"longer than twelve bytes", b"x"]),
    "day": (
        "date",
        pa.date32(),
        [dt.date(1582, 10, 3), dt.date(9999, 12, 31), None, dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    ),
    "moment": (
        "timestamp",
        pa.timestamp("us", tz="UTC"),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            dt.datetime(2262, 1, 1, tzinfo=UTC),
            None,
            dt.datetime(1970, 1, 1, tzinfo=UTC),
            dt.datetime(2024, 3, 31, 2, 30, 0, 123456, tzinfo=UTC),
        ],
    ),
    "wall": (
        "timestamp_ntz",
        pa.timestamp("us"),
        [
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(9999, 12, 31, 23, 59, 59),
            None,
            dt.datetime(1970, 1, 1),
            dt.datetime(2024, 3, 31, 2, 30, 0, 123456),
        ],
    ),
}
"""Column -> its type in a TableSource, its Arrow type, its values in the order of ``id``."""

NUMBERS_ROWS = 300_000
NUMBERS_FILES = 3
GROUPS = 10

NESTED: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "list_": ("array<int>", pa.list_(pa.int32()), [[1, None, 3], [], None]),
    "record": (
        "struct<a:int,b:string>",
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        [{"a": 1, "b": "Ünï"}, {"a": None, "b": None}, None],
    ),
    "pairs": ("map<string,int>", pa.map_(pa.string(), pa.int32()), [[("k", 1), ("l", None)], [], None]),
}
"""Like KINDS; an engine hands such values on as they are, or as JSON."""

AT_ONCE = 16
LEAK_ROUNDS = 8  # more than a pool may keep, so that one thing left per round is seen

SLOW_SQL = "SELECT COUNT(*) AS n, SUM((a.id * b.id) % 7) AS total FROM numbers a CROSS JOIN numbers b"
"""9e10 pairs, each of which has to be looked at."""

SLOW_SPARK_SQL = SLOW_SQL.replace("numbers a", "typed a")
"""The same of text. Spark looks once per row of it whether it is to stop, and of Parquet once per batch: a task that is
killed would pair some thousand more rows with all others."""

SMALL_LEASE_BYTES = 24 * 1024 * 1024
LARGE_GROUPING = (
    "SELECT COUNT(*) AS n FROM (SELECT a.id * 5 + b.id AS k, MAX(a.grp) AS g FROM numbers a CROSS JOIN kinds b "
    "GROUP BY a.id * 5 + b.id) grouped WHERE g < 7"
)
"""A million and a half groups, which are several times the small lease."""

GROUPS_BELOW_SEVEN = NUMBERS_ROWS * 5 * 7 // GROUPS
"""Five kinds; groups of numbers go round."""

LOST_WITHIN_S = 60.0
RECOVERED_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The test tables and where they are."""

    folder: Path
    tables: tuple[TableSource, ...]

    def table(self, name: str) -> TableSource:
        """Return the table of this name."""
        return next(table for table in self.tables if table.name == name)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Small tables as files, shared by all engines' tests and written by none of them."""
    folder = tmp_path_factory.mktemp("warehouse")
    return Warehouse(
        folder,
        (
            _kinds(folder),
            _numbers(folder),
            _typed(folder),
            _sales(folder),
            _piped(folder),
            _lines(folder),
            _hyphenated(folder),
            _nested(folder),
            _striped(folder),
        ),
    )


def _kinds(folder: Path) -> TableSource:
    ids = range(len(KINDS["flag"][2]))
    columns = {name: pa.array(values, kind) for name, (_, kind, values) in KINDS.items()}
    _write(folder / "kinds", pa.table({"id": pa.array(ids, pa.int64()), **columns}))
    declared = tuple(Column(name, data_type) for name, (data_type, _, _) in KINDS.items())
    return TableSource("kinds", str(folder / "kinds"), "parquet", (Column("id", "bigint"), *declared))


def _numbers(folder: Path) -> TableSource:
    per_file = NUMBERS_ROWS // NUMBERS_FILES
    for part in range(NUMBERS_FILES):
        ids = pa.array(range(part * per_file, (part + 1) * per_file), pa.int64())
        groups = pa.array([number % GROUPS for number in range(per_file)], pa.int32())
        _write(folder / "numbers", pa.table({"id": ids, "grp": groups}), f"{part}.parquet")
    columns = (Column("id", "bigint"), Column("grp", "int"))
    return TableSource("numbers", str(folder / "numbers"), "parquet", columns)


def _typed(folder: Path) -> TableSource:
    """Write the numbers as text."""
    per_file = NUMBERS_ROWS // NUMBERS_FILES
    (folder / "typed").mkdir()
    for part in range(NUMBERS_FILES):
        text = "\n".join(map(str, range(part * per_file, (part + 1) * per_file)))
        (folder / "typed" / f"{part}.csv").write_text(f"{text}\n", encoding="utf-8")
    return TableSource("typed", str(folder / "typed"), "csv", (Column("id", "bigint"),), options={"header": "false"})


def _sales(folder: Path) -> TableSource:
    for year, region, amount in ((2023, "north", 1), (2023, "south", 2), (2024, "north", 4)):
        part = folder / "sales" / f"year={year}" / f"region={region}"
        _write(part, pa.table({"amount": pa.array([amount], pa.int64())}))
    columns = (Column("year", "int"), Column("amount", "bigint"), Column("region", "string"))
    return TableSource("sales", str(folder / "sales"), "parquet", columns, partition_columns=("year", "region"))


def _piped(folder: Path) -> TableSource:
    (folder / "piped.csv").write_text("1|Ünï, with comma|0.50|2024-02-29\n2||-1.25|\n", encoding="utf-8")
    columns = (
        Column("id", "bigint"),
        Column("title", "string"),
        Column("price", "decimal(10,2)"),
        Column("sold", "date"),
    )
    options = {"delimiter": "|", "header": "false"}
    return TableSource("piped", str(folder / "piped.csv"), "csv", columns, options=options)


def _lines(folder: Path) -> TableSource:
    lines = [{"id": 1, "title": "Ünï"}, {"id": 2, "title": None}]
    (folder / "lines.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    columns = (Column("id", "bigint"), Column("title", "string"))
    return TableSource("lines", str(folder / "lines.json"), "json", columns)


def _hyphenated(folder: Path) -> TableSource:
    _write(folder / "odd", pa.table({"a column": pa.array([1, 2, 3], pa.int64())}))
    return TableSource("odd-name", str(folder / "odd"), "parquet", (Column("a column", "bigint"),))


def _nested(folder: Path) -> TableSource:
    columns = {name: pa.array(values, kind) for name, (_, kind, values) in NESTED.items()}
    rows = len(NESTED["list_"][2])
    _write(folder / "nested", pa.table({"id": pa.array(range(rows), pa.int64()), **columns}))
    declared = tuple(Column(name, data_type) for name, (data_type, _, _) in NESTED.items())
    return TableSource("nested", str(folder / "nested"), "parquet", (Column("id", "bigint"), *declared))


def _striped(folder: Path) -> TableSource:
    """Write ORC in folders by year."""
    for year in (2023, 2024):
        part = folder / "striped" / f"year={year}"
        part.mkdir(parents=True)
        titles = pa.array(["Ünï", None])
        days = pa.array([dt.date(1969, 12, 31), None])
        exact = pa.array([Decimal("-1.25"), None], pa.decimal128(10, 2))
        pa_orc.write_table(pa.table({"title": titles, "day": days, "exact": exact}), part / "a.orc")
    columns = (
        Column("title", "string"),
        Column("day", "date"),
        Column("exact", "decimal(10,2)"),
        Column("year", "int"),
    )
    return TableSource("striped", str(folder / "striped"), "orc", columns, partition_columns=("year",))


def _write(folder: Path, table: pa.Table, file: str = "part.parquet") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / file)


class Conformance:
    """One suite that every engine inherits. slow_sql: a statement that takes hours, unless somebody ends it."""

    slow_sql = SLOW_SQL

    @pytest.fixture
    def engine(self) -> Engine:
        """Return the engine under test; it lives longer than one test."""
        raise NotImplementedError("an engine's tests supply the engine")

    @pytest.fixture
    def spare_engine(self) -> Iterator[Engine]:
        """Give an engine of its own to a test that closes it."""
        raise NotImplementedError("an engine's tests supply an engine to close")

    @pytest.fixture
    def mortal(self) -> Iterator[tuple[Engine, Callable[[], None]]]:
        """Give an engine of a test's own, and what kills all that runs behind it (kill -9) but may come back."""
        pytest.skip("nothing behind this engine can be killed here")

    @pytest.fixture
    def stranger(self) -> Iterator[Engine]:
        """Give an engine whose credentials are wrong."""
        pytest.skip("this engine asks for no credentials")

    @pytest.fixture(autouse=True)
    def _tables(self, engine: Engine, warehouse: Warehouse) -> None:
        engine.use_tables([table for table in warehouse.tables if table.format in engine.formats])

    def test_describes_itself(self, engine: Engine) -> None:
        assert isinstance(engine, Engine)
        assert engine.name
        assert callable(importlib.import_module(engine.writer).write)
        assert engine.slots >= 1
        assert "parquet" in engine.formats

    @pytest.mark.parametrize("column", KINDS)
    def test_values_come_back_as_they_were_written(self, engine: Engine, column: str) -> None:
        _, kind, values = KINDS[column]
        answer = ask(engine, f"SELECT id, {column} FROM kinds ORDER BY id")
        assert _family(answer.schema.field(column).type) == _family(kind)
        assert [_plain(value) for value in answer[column].to_pylist()] == [_plain(value) for value in values]

    @pytest.mark.parametrize("column", KINDS)
    def test_filters_find_nulls(self, engine: Engine, column: str) -> None:
        assert ask(engine, f"SELECT id FROM kinds WHERE {column} IS NULL")["id"].to_pylist() == [2]

    def test_schema_is_known_before_the_first_batch(self, engine: Engine) -> None:
        with run(engine, "SELECT id AS first_one, name AS second_one FROM kinds") as result:
            assert result.schema.names == ["first_one", "second_one"]
            assert _family(result.schema.field("first_one").type) == _family(pa.int64())
            for batch in result:
                assert batch.schema == result.schema

    def test_equal_names_stay(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT id AS n, id + 1 AS n FROM kinds WHERE id = 0")
        assert [column.to_pylist() for column in answer.columns] == [[0], [1]]

    def test_empty_result_keeps_its_schema(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT id, name, money FROM kinds WHERE id < 0")
        assert answer.num_rows == 0
        assert answer.schema.names == ["id", "name", "money"]
        assert answer.schema.field("money").type == pa.decimal128(10, 2)

    def test_larger_result_comes_in_several_batches(self, engine: Engine) -> None:
        with run(engine, "SELECT id FROM numbers") as result:
            batches = list(result)
        assert len(batches) > 1
        assert sum(batch.num_rows for batch in batches) == NUMBERS_ROWS
        assert sum(pc.sum(batch["id"]).as_py() for batch in batches) == NUMBERS_ROWS * (NUMBERS_ROWS - 1) // 2

    def test_order_survives_the_batches(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT id FROM numbers ORDER BY id DESC")
        assert answer["id"].to_pylist() == list(range(NUMBERS_ROWS - 1, -1, -1))

    def test_reading_past_the_end_is_harmless(self, engine: Engine) -> None:
        with run(engine, "SELECT id FROM kinds") as result:
            list(result)
            assert next(result, None) is None
        assert next(result, None) is None

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT no_such_column FROM kinds",
            "SELECT id FROM no_such_table",
            "SELECT no_such_function(id) FROM kinds",
            "SELECT id FROM kinds WHERE id =",
            "SELEC id FROM kinds",
            "SELECT name FROM kinds GROUP BY id",
        ],
    )
    def test_wrong_statements_are_the_statements_fault(self, engine: Engine, sql: str) -> None:
        with pytest.raises((StatementError, UnsupportedFeature)) as caught:
            ask(engine, sql)
        assert caught.value.message
        assert len(caught.value.message) < 1000
        assert "\tat " not in caught.value.message

    def test_next_statement_works_after_a_wrong_one(self, engine: Engine) -> None:
        with pytest.raises(EngineError):
            ask(engine, "SELECT no_such_column FROM kinds")
        assert _count(engine, "kinds") == 5

    @pytest.mark.parametrize("after_s", [0.2, 1.5])
    def test_cancel_from_another_thread(self, engine: Engine, after_s: float) -> None:
        ask(engine, "SELECT 1 AS one")  # nothing has to start first
        query_id = _new_id()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, engine, self.slow_sql, query_id=query_id)
            time.sleep(after_s)
            assert not asked.done()
            engine.cancel(query_id)
            with pytest.raises(StatementCancelled):
                asked.result(timeout=SOON_S)
        assert _count(engine, "kinds") == 5

    def test_cancel_between_batches_never_shortens_a_result_silently(self, engine: Engine) -> None:
        query_id = _new_id()
        with run(engine, "SELECT id FROM numbers", query_id=query_id) as result:
            rows = next(result).num_rows
            engine.cancel(query_id)
            try:
                rows += sum(batch.num_rows for batch in result)
            except StatementCancelled:
                return
        assert rows == NUMBERS_ROWS

    def test_cancel_of_an_unknown_statement_is_harmless(self, engine: Engine) -> None:
        engine.cancel("no-such-statement")
        query_id = _new_id()
        ask(engine, "SELECT 1 AS one", query_id=query_id)
        engine.cancel(query_id)
        assert ask(engine, "SELECT 1 AS one", query_id=query_id)["one"].to_pylist() == [1]

    def test_deadline_ends_a_statement(self, engine: Engine) -> None:
        ask(engine, "SELECT 1 AS one")
        started_s = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            ask(engine, self.slow_sql, deadline_s=1.0)
        assert time.monotonic() - started_s < SOON_S
        assert _count(engine, "kinds") == 5

    def test_half_read_result_can_be_closed(self, engine: Engine) -> None:
        for _ in range(engine.slots + 1):
            with run(engine, "SELECT a.id FROM numbers a CROSS JOIN kinds b") as result:
                assert next(result).num_rows > 0
            result.close()
        assert _count(engine, "kinds") == 5

    def test_running_statement_can_be_closed_unread(self, engine: Engine) -> None:
        ask(engine, "SELECT 1 AS one")
        query_id = _new_id()
        closer = threading.Timer(0.5, engine.cancel, [query_id])  # for an engine whose execute waits for rows
        closer.start()
        try:
            with run(engine, self.slow_sql, query_id=query_id):
                pass
        except StatementCancelled:
            pass
        closer.join()
        started_s = time.monotonic()
        assert _count(engine, "kinds") == 5
        assert time.monotonic() - started_s < FREED_WITHIN_S

    def test_statements_at_once_get_their_own_answers(self, engine: Engine) -> None:
        per_group = NUMBERS_ROWS // GROUPS

        def group_sum(group: int) -> tuple[int, int]:
            sql = f"SELECT COUNT(*) AS n, SUM(id) AS total FROM numbers WHERE grp = {group}"
            row = ask(engine, sql).to_pylist()[0]
            return row["n"], int(row["total"])

        with ThreadPoolExecutor(engine.slots) as pool:
            answers = list(pool.map(group_sum, range(GROUPS)))
        step = GROUPS * per_group * (per_group - 1) // 2
        assert answers == [(per_group, per_group * group + step) for group in range(GROUPS)]

    def test_more_statements_at_once_than_slots(self, engine: Engine) -> None:
        """Each gets its own answer, or is told that the engine is busy."""
        ask(engine, "SELECT 1 AS one")

        def square(number: int) -> int | None:
            try:
                return int(ask(engine, f"SELECT {number} * {number} AS n FROM kinds WHERE id = 0")["n"][0].as_py())
            except EngineBusy:
                return None

        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(square, range(2 * AT_ONCE)))
        assert all(answer in (None, number * number) for number, answer in enumerate(answers))
        assert sum(answer is not None for answer in answers) >= engine.slots

    def test_nothing_leaks(self, engine: Engine, warehouse: Warehouse) -> None:
        """Neither files, connections, threads nor processes are left by answers, errors, cancels and closes."""

        def use() -> None:
            ask(engine, "SELECT * FROM kinds")
            with pytest.raises(EngineError):
                ask(engine, "SELECT no_such_column FROM kinds")
            with run(engine, "SELECT id FROM numbers") as result:
                next(result)
            query_id = _new_id()
            with run(engine, "SELECT id FROM numbers", query_id=query_id) as result:
                engine.cancel(query_id)

        for _ in range(3):
            use()
        before = _held()
        for _ in range(LEAK_ROUNDS):
            use()
        allowed = engine.slots + 2  # what a pool may keep for later
        _soon(lambda: _grown(before, _held()) <= allowed, lambda: f"{before} became {_held()}")

    @pytest.mark.parametrize("column", NESTED)
    def test_nested_values_come_as_they_are_or_as_json(self, engine: Engine, column: str) -> None:
        answer = ask(engine, f"SELECT {column} FROM nested ORDER BY id")
        assert [_from_json(value) for value in answer[column].to_pylist()] == [
            _from_json(value) for value in NESTED[column][2]
        ]

    def test_orc(self, engine: Engine) -> None:
        if "orc" not in engine.formats:
            pytest.skip("reads no orc")
        assert ask(engine, "SELECT * FROM striped WHERE year = 2024 AND title IS NOT NULL").to_pylist() == [
            {"title": "Ünï", "day": dt.date(1969, 12, 31), "exact": Decimal("-1.25"), "year": 2024}
        ]
        assert ask(engine, "SELECT COUNT(*) AS n FROM striped WHERE day IS NULL")["n"].to_pylist() == [2]

    def test_huge_result_streams(self, engine: Engine) -> None:
        """Three million rows are read without ever holding them all."""
        sql = "SELECT a.id, b.name FROM numbers a CROSS JOIN kinds b WHERE b.id < 10"
        rows, checksum, largest = 0, 0, 0
        with run(engine, sql) as result:
            for batch in result:
                rows += batch.num_rows
                checksum += pc.sum(batch["id"]).as_py()
                largest = max(largest, batch.num_rows)
        assert rows == 5 * NUMBERS_ROWS
        assert checksum == 5 * NUMBERS_ROWS * (NUMBERS_ROWS - 1) // 2
        assert largest < rows // 2

    def test_unicode_survives_both_ways(self, engine: Engine) -> None:
        text = "Ünïcödé ☃ 書籍 😀"
        answer = ask(engine, f"SELECT '{text}' AS {_quoted(engine, 'größe')} FROM kinds WHERE name LIKE '%☃ 書%'")
        assert answer.to_pylist() == [{"größe": text}]

    @pytest.mark.parametrize("after_s", [0.0, 0.01, 0.05])
    def test_cancel_at_once(self, engine: Engine, after_s: float) -> None:
        """Before it is planned or while it is: the statement ends soon, and the next one works."""
        query_id = _new_id()
        canceller = threading.Timer(after_s, engine.cancel, [query_id])
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, engine, self.slow_sql, query_id=query_id)
            canceller.start()
            repeat_s = time.monotonic() + SOON_S
            while not asked.done() and time.monotonic() < repeat_s:  # one that came before it started finds nothing
                time.sleep(0.25)
                engine.cancel(query_id)
            with pytest.raises(StatementCancelled):
                asked.result(timeout=SOON_S)
        canceller.join()
        assert _count(engine, "kinds") == 5

    def test_deadline_that_has_passed(self, engine: Engine) -> None:
        with pytest.raises(DeadlineExceeded):
            ask(engine, "SELECT COUNT(*) AS n FROM numbers a CROSS JOIN numbers b", deadline_s=0.0)
        assert _count(engine, "kinds") == 5

    def test_memory_beyond_the_lease(self, engine: Engine) -> None:
        if engine.kind is not EngineKind.FAST:
            pytest.skip("a dependable engine spills instead")
        small = EngineLease(memory_bytes=SMALL_LEASE_BYTES)
        with pytest.raises(MemoryExceeded) as caught:
            with engine.execute(LARGE_GROUPING, query_id=_new_id(), lease=small, deadline_s=DEADLINE_S) as result:
                list(result)
        assert caught.value.fails_over
        assert caught.value.remembered
        assert _count(engine, "kinds") == 5

    def test_who_watches_is_told_what_can_be(self, engine: Engine) -> None:
        """Whatever an engine tells, the rows are the same."""
        held: list[int] = []
        peak_bytes = _grouped(engine, LEASE, held.append)
        assert all(held_bytes >= 0 for held_bytes in held)
        assert not held or peak_bytes is None or max(held) <= 1.5 * peak_bytes

    @pytest.mark.parametrize("threads", [1, 3])
    def test_the_threads_of_a_lease_change_no_answer(self, engine: Engine, threads: int) -> None:
        _grouped(engine, replace(LEASE, threads=threads))

    def test_more_memory_while_it_runs(self, engine: Engine) -> None:
        if not isinstance(engine, Elastic):
            pytest.skip("a statement keeps the limit that it began with")
        engine.raise_limit(_new_id(), LEASE.memory_bytes)  # nobody's
        peak_bytes = _grouped(engine, LEASE)
        assert peak_bytes is not None
        small, query_id = replace(LEASE, memory_bytes=peak_bytes // 2), _new_id()
        with pytest.raises(MemoryExceeded):
            _grouped(engine, small)
        _grouped(engine, small, lambda _: engine.raise_limit(query_id, LEASE.memory_bytes), query_id)
        engine.raise_limit(query_id, LEASE.memory_bytes)  # too late
        with pytest.raises(MemoryExceeded):
            _grouped(engine, small)

    def test_killed_before_a_statement(self, mortal: tuple[Engine, Callable[[], None]], warehouse: Warehouse) -> None:
        engine, kill = mortal
        engine.use_tables([warehouse.table("kinds")])
        assert _count(engine, "kinds") == 5
        kill()
        _recovers(engine)

    def test_killed_during_a_statement(self, mortal: tuple[Engine, Callable[[], None]], warehouse: Warehouse) -> None:
        engine, kill = mortal
        engine.use_tables([warehouse.table("kinds"), warehouse.table("typed"), warehouse.table("numbers")])
        assert _count(engine, "kinds") == 5
        killer = threading.Timer(1.0, kill)
        killer.start()
        started_s = time.monotonic()
        with pytest.raises(EngineUnavailable) as caught:
            ask(engine, self.slow_sql)
        killer.join()
        assert time.monotonic() - started_s < LOST_WITHIN_S
        assert caught.value.fails_over
        _recovers(engine)

    def test_killed_after_the_first_batch(
        self, mortal: tuple[Engine, Callable[[], None]], warehouse: Warehouse
    ) -> None:
        """Either the rest had been sent already, or the loss is told; a result is never cut short in silence."""
        engine, kill = mortal
        engine.use_tables([warehouse.table("kinds"), warehouse.table("numbers")])
        with run(engine, "SELECT a.id, b.name FROM numbers a CROSS JOIN kinds b") as result:
            rows = next(result).num_rows
            kill()
            try:
                rows += sum(batch.num_rows for batch in result)
            except EngineUnavailable:
                rows = 5 * NUMBERS_ROWS
        assert rows == 5 * NUMBERS_ROWS
        _recovers(engine)

    def test_wrong_credentials(self, stranger: Engine) -> None:
        with pytest.raises(EngineUnavailable) as caught:
            ask(stranger, "SELECT 1 AS one")
        assert caught.value.message
        stranger.close()

    def test_explain_shows_the_scan(self, engine: Engine) -> None:
        plan = engine.explain("SELECT grp, COUNT(*) AS n FROM numbers GROUP BY grp").lower()
        assert "scan" in plan or "read_parquet" in plan

    def test_explain_of_a_wrong_statement(self, engine: Engine) -> None:
        with pytest.raises((StatementError, UnsupportedFeature)) as caught:
            engine.explain("SELECT no_such_column FROM kinds")
        assert "no_such_column" in caught.value.message

    def test_status_is_alive_and_quick(self, engine: Engine) -> None:
        ask(engine, "SELECT 1 AS one")
        started_s = time.monotonic()
        status = engine.status()
        assert time.monotonic() - started_s < SOON_S / 2
        assert status.alive
        assert status.detail

    def test_changed_tables_are_seen_by_the_next_statement(
        self, engine: Engine, warehouse: Warehouse, tmp_path: Path
    ) -> None:
        assert _count(engine, "kinds") == 5
        _write(tmp_path / "other", pa.table({"id": pa.array([7], pa.int64())}))
        moved = TableSource("kinds", str(tmp_path / "other"), "parquet", (Column("id", "bigint"),))
        engine.use_tables([moved, replace(warehouse.table("odd-name"), name="odd_name")])
        assert ask(engine, "SELECT * FROM kinds").to_pylist() == [{"id": 7}]
        assert _count(engine, "odd_name") == 3
        for gone in ("numbers", _quoted(engine, "odd-name")):
            with pytest.raises((StatementError, UnsupportedFeature)):
                _count(engine, gone)

    def test_files_that_come_later_are_seen(self, engine: Engine, tmp_path: Path) -> None:
        folder = tmp_path / "grows"
        _write(folder, pa.table({"id": pa.array([1], pa.int64())}), "1.parquet")
        engine.use_tables([TableSource("grows", str(folder), "parquet", (Column("id", "bigint"),))])
        assert _count(engine, "grows") == 1
        _write(folder, pa.table({"id": pa.array([2, 3], pa.int64())}), "2.parquet")
        assert _count(engine, "grows") == 3

    def test_table_without_files_harms_no_other(self, engine: Engine, warehouse: Warehouse, tmp_path: Path) -> None:
        gone = TableSource("gone", str(tmp_path / "gone"), "parquet", (Column("id", "bigint"),))
        engine.use_tables([gone, warehouse.table("kinds")])
        assert _count(engine, "kinds") == 5
        with pytest.raises(EngineError) as caught:
            _count(engine, "gone")
        assert str(tmp_path) not in caught.value.message

    def test_partition_columns_come_from_the_folders(self, engine: Engine) -> None:
        answer = ask(engine, "SELECT * FROM sales ORDER BY amount")
        assert answer.to_pylist() == [
            {"year": 2023, "amount": 1, "region": "north"},
            {"year": 2023, "amount": 2, "region": "south"},
            {"year": 2024, "amount": 4, "region": "north"},
        ]
        totals = ask(engine, "SELECT SUM(amount) AS total FROM sales WHERE year = 2023 AND region <> 'south'")
        assert int(totals["total"][0].as_py()) == 1

    def test_delimited_text(self, engine: Engine) -> None:
        if "csv" not in engine.formats:
            pytest.skip("reads no csv")
        assert ask(engine, "SELECT * FROM piped ORDER BY id").to_pylist() == [
            {"id": 1, "title": "Ünï, with comma", "price": Decimal("0.50"), "sold": dt.date(2024, 2, 29)},
            {"id": 2, "title": None, "price": Decimal("-1.25"), "sold": None},
        ]

    def test_json_lines(self, engine: Engine) -> None:
        if "json" not in engine.formats:
            pytest.skip("reads no json")
        assert ask(engine, "SELECT * FROM lines ORDER BY id").to_pylist() == [
            {"id": 1, "title": "Ünï"},
            {"id": 2, "title": None},
        ]

    def test_table_names_ignore_case_and_may_be_quoted(self, engine: Engine) -> None:
        assert ask(engine, "SELECT COUNT(*) AS n FROM Kinds AS K WHERE k.ID >= 0")["n"].to_pylist() == [5]
        column, table = _quoted(engine, "a column"), _quoted(engine, "odd-name")
        assert int(ask(engine, f"SELECT SUM({column}) AS total FROM {table}")["total"][0].as_py()) == 6

    def test_close_twice(self, spare_engine: Engine, warehouse: Warehouse) -> None:
        spare_engine.use_tables([warehouse.table("kinds")])
        assert _count(spare_engine, "kinds") == 5
        spare_engine.close()
        spare_engine.close()
        assert not spare_engine.status().alive
        with pytest.raises(EngineUnavailable):
            _count(spare_engine, "kinds")


def run(engine: Engine, sql: str, *, query_id: str | None = None, deadline_s: float = DEADLINE_S) -> ResultStream:
    """Start a statement."""
    return engine.execute(sql, query_id=query_id or _new_id(), lease=LEASE, deadline_s=deadline_s)


def ask(engine: Engine, sql: str, *, query_id: str | None = None, deadline_s: float = DEADLINE_S) -> pa.Table:
    """Run a statement to its end."""
    with run(engine, sql, query_id=query_id, deadline_s=deadline_s) as result:
        return pa.Table.from_batches(list(result), result.schema)


def _held() -> dict[str, int]:
    """Count what this process holds open."""
    process = psutil.Process()
    return {
        "files and connections": process.num_fds(),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
    }


def _grown(before: dict[str, int], now: dict[str, int]) -> int:
    return max(now[what] - before[what] for what in before)


def _soon(happened: Callable[[], bool], told: Callable[[], str], within_s: float = SOON_S) -> None:
    give_up_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < give_up_s, told()
        time.sleep(0.1)


def _recovers(engine: Engine) -> None:
    """Wait until an engine that was killed answers again; until then it says that it is not there."""
    give_up_s = time.monotonic() + RECOVERED_WITHIN_S
    while True:
        try:
            assert _count(engine, "kinds") == 5
            return
        except (EngineUnavailable, EngineBusy):
            assert time.monotonic() < give_up_s, "the engine did not come back"
            time.sleep(0.5)


def _from_json(value: Any) -> Any:
    """Return a nested value from its JSON, maps as sorted lists of pairs."""
    if isinstance(value, str):
        value = json.loads(value)
        if isinstance(value, dict) and set(value) != {"a", "b"}:
            return sorted(value.items())
    return value


def _new_id() -> str:
    return f"test-{uuid.uuid4().hex}"


def _grouped(engine: Engine, lease: EngineLease, watch: Watch = unwatched, query_id: str | None = None) -> int | None:
    """Run the large grouping, and return its peak where the engine tells it."""
    asked = query_id or _new_id()
    with engine.execute(LARGE_GROUPING, query_id=asked, lease=lease, deadline_s=DEADLINE_S, watch=watch) as result:
        assert pa.Table.from_batches(result, schema=result.schema).to_pylist() == [{"n": GROUPS_BELOW_SEVEN}]
    return result.actuals.peak_bytes


def _count(engine: Engine, table: str) -> int:
    count: int = ask(engine, f"SELECT COUNT(*) AS n FROM {table}")["n"][0].as_py()
    return count


def _quoted(engine: Engine, name: str) -> str:
    quote = "`" if engine.backtracks or "impala" in engine.writer else '"'
    return f"{quote}{name}{quote}"


def _plain(value: Any) -> Any:
    """Make values comparable: NaN equals itself, a moment without zone is one of UTC."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return repr(value) if isinstance(value, float) else value


def _family(kind: pa.DataType) -> str:
    """Return a type's name without what engines may choose: offset width, time zone, nullability."""
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return "binary"
    return str(kind)
