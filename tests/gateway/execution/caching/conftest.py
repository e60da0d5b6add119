"""Gateways with a cache: over a real DuckDB, with tables that change."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway import settings as settings_module
from gateway.catalog.new_table import NewTable
from gateway.security.principals import IN_PROCESS
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.statements.caching import CacheUse
from gateway.statements.statement import Run, Statement
from metastore.records import QueryRecord
from sql.tables import Column

SETTLES_S = 0.03
DIGITS = 4
COLUMNS = (Column("id", "int"), Column("value", "int"))
Rows = list[tuple[Any, ...]]


def settled() -> None:
    """Let what has changed become old enough to be kept."""
    time.sleep(2 * SETTLES_S)


def line(key: int, value: int) -> str:
    return f"{key:0{DIGITS}},{value:0{DIGITS}}\n"


@dataclass(slots=True)
class Asked:
    """A query that has ended."""

    run: Run
    rows: Rows

    @property
    def use(self) -> CacheUse:
        return self.run.cache

    @property
    def record(self) -> QueryRecord:
        return self.run.record


@dataclass(slots=True)
class House:
    """A gateway over a real DuckDB, with tables of text below a folder."""

    gateway: Gateway
    folder: Path
    _files: Iterator[int] = field(default_factory=itertools.count)

    def make(self, name: str, rows: dict[int, int]) -> Path:
        """Make a table and return its folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.append(name, rows)
        self.register(name)
        return folder

    def register(self, name: str, place: Path | None = None) -> None:
        wanted = NewTable(
            name, str(place or self.folder / name), format="csv", options={"delimiter": ","}, columns=COLUMNS
        )
        self.gateway.registration.add(wanted, user=IN_PROCESS)

    def append(self, name: str, rows: dict[int, int]) -> Path:
        file = self.folder / name / f"part-{next(self._files)}.csv"
        file.write_text("".join(line(*row) for row in rows.items()), encoding="utf-8")
        return file

    def ask(self, sql: str, *, cache: bool | None = True, **fields: Any) -> Asked:
        run = self.gateway.coordinator.submit(Statement(sql, cache=cache, **fields))
        record = run.done.result(timeout=30)
        assert record.error is None, record.error
        with self.gateway.spool.open(run.id) as result:
            rows = [tuple(row.values()) for batch in result for row in batch.to_pylist()]
        return Asked(run, rows)

    def ask_twice(self, sql: str, **fields: Any) -> tuple[Asked, Asked]:
        """Have the first of two runs kept."""
        settled()
        return self.ask(sql, **fields), self.ask(sql, **fields)


def gateway_at(folder: Path, **sections: Any) -> Gateway:
    """Build a gateway over a real DuckDB that takes files for old after a moment."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    settings = settings_module.load(
        folder / "home",
        duckdb=DuckDBSettings(workers=1, threads=1),
        spark=SparkSettings(enabled=False),
        **sections,
    )
    gateway = wiring.build(settings)
    gateway.registration.files._settled_s = SETTLES_S
    return gateway


@contextmanager
def house_at(folder: Path, **sections: Any) -> Iterator[House]:
    """Start one."""
    gateway = gateway_at(folder, **sections)
    (folder / "tables").mkdir(exist_ok=True)
    gateway.start()
    try:
        yield House(gateway, folder / "tables")
    finally:
        gateway.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Start one for a module, whose tests have tables of their own."""
    with house_at(tmp_path_factory.mktemp("cached")) as house:
        yield house


@pytest.fixture
def house(shared: House, tmp_path: Path) -> House:
    """Return the same with a folder of the test's own."""
    shared.folder = tmp_path
    return shared
