"""Rows through Arrow Flight SQL, as ADBC's own driver reads them: for claims that put it beside other clients."""

from __future__ import annotations

import time
from contextlib import closing

import adbc_driver_flightsql.dbapi as adbc
import psutil

from benchmarks.claim import RunFailed

LOOK_EVERY = 8  # batches between two looks at the server's memory


def adbc_drain(address: str, sql: str, rows: int, *, user: str = "") -> float:
    """Read all rows of a statement as Arrow's batches; returns the seconds from its end to the last of them.

    address: host:port of Flight SQL, as ``gateway.json`` of a home has it. rows: how many there must be.
    """
    with _connected(address, user) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        begun = time.perf_counter()
        got = sum(batch.num_rows for batch in cursor.fetch_record_batch())
        elapsed_s = time.perf_counter() - begun
    if got != rows:
        raise RunFailed(f"{address} gave ADBC {got:,} rows instead of {rows:,}")
    return elapsed_s


def adbc_growth_bytes(address: str, sql: str, server: psutil.Process, *, user: str = "") -> tuple[int, int]:
    """Read all rows of a statement; returns how many, and by how much the server's memory grew at most meanwhile."""
    with _connected(address, user) as connection, closing(connection.cursor()) as cursor:
        before = peak = server.memory_info().rss
        cursor.execute(sql)
        rows = 0
        for number, batch in enumerate(cursor.fetch_record_batch()):
            rows += batch.num_rows
            if number % LOOK_EVERY == 0:
                peak = max(peak, server.memory_info().rss)
        peak = max(peak, server.memory_info().rss)
    return rows, int(peak - before)


def _connected(address: str, user: str) -> closing[adbc.Connection]:
    login = {"username": user} if user else {}
    return closing(adbc.connect(f"grpc://{address}", db_kwargs=login, autocommit=True))
