"""Python's clients reading a whole result: PyHive and impyla through HiveServer2, ADBC through Arrow Flight SQL.

Each drain takes host:port, a statement and how many rows it has, and returns the seconds from the statement's end to
its last row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import impala.dbapi as impala  # type: ignore[import-untyped]
from pyhive import hive  # type: ignore[import-untyped]

from benchmarks.claim import RunFailed
from benchmarks.doors import Http2Line, flight_infos, flight_token

USER = "bench"

Drain = Callable[[str, str, int], float]


def pyhive_drain(address: str, sql: str, rows: int) -> float:
    """Read all rows with PyHive, a thousand at a time, as nobody changes."""
    host, port = _place(address)
    with hive.connect(host, port=port, auth="NONE", username=USER) as connection, connection.cursor() as cursor:
        return _fetched(cursor, sql, rows, "PyHive")


def impyla_drain(address: str, sql: str, rows: int) -> float:
    """Read all rows with impyla."""
    host, port = _place(address)
    with impala.connect(host, port, auth_mechanism="PLAIN", user=USER, password=USER) as connection:
        with closing(connection.cursor()) as cursor:
            return _fetched(cursor, sql, rows, "impyla")


def adbc_drain(address: str, sql: str, rows: int) -> float:
    """Read all rows with ADBC, as Arrow's batches."""
    login = {"username": USER}
    with closing(adbc.connect(f"grpc://{address}", db_kwargs=login, autocommit=True)) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute(sql)
            begun = time.perf_counter()
            got = sum(batch.num_rows for batch in cursor.fetch_record_batch())
            elapsed_s = time.perf_counter() - begun
    _require(got, rows, "ADBC")
    return elapsed_s


def raw_flight_drain(address: str, sql: str, rows: int) -> tuple[float, int]:
    """Read all rows of Flight SQL, and look at the heads of HTTP/2's frames alone; returns seconds, and bytes."""
    line = Http2Line(address, flight_token(address))
    with closing(line.socket):
        (info,) = flight_infos(line, sql)
        if info.total_records != rows:
            raise RunFailed(f"{info.total_records:,} rows instead of {rows:,}")
        line.send(line.call("DoGet", info.endpoint[0].ticket.SerializeToString()))
        begun, size = time.perf_counter(), 0
        for frame in line.frames():
            size += len(frame.payload)
        elapsed_s = time.perf_counter() - begun
        line.leave()
    return elapsed_s, size


PYTHON_DRAINS: dict[str, Drain] = {"pyhive": pyhive_drain, "impyla": impyla_drain, "adbc": adbc_drain}


def _fetched(cursor: Any, sql: str, rows: int, client: str) -> float:
    cursor.execute(sql)
    begun = time.perf_counter()
    got = len(cursor.fetchall())
    elapsed_s = time.perf_counter() - begun
    _require(got, rows, client)
    return elapsed_s


def _require(got: int, rows: int, client: str) -> None:
    if got != rows:
        raise RunFailed(f"{client} got {got:,} rows instead of {rows:,}")


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
