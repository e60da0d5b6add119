"""The clients that claims imitate: their calls are those of the drivers, through each door of a real gateway."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pytest

from benchmarks import http2
from benchmarks.doors import HS2_CALLS, Driver, connect
from benchmarks.replay import SASL_MESSAGES, Protocol, recording, replaying
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import scripted

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
impala = pytest.importorskip("impala.dbapi", reason="needs the extra impala")

SQL = "SELECT 1"
ROWS = [(42,), (43,)]  # of the scripted engine
HANDLE = re.compile(rb"(\x0b\x00\x01\x00\x00\x00\x10).{16}\x0b\x00\x02\x00\x00\x00\x10.{16}", re.DOTALL)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Driver, str]]:
    """Serve scripted engines; yields host:port of each driver's door."""
    with scripted(tmp_path_factory.mktemp("home")) as drivers, flight_port(drivers.gateway) as flight:
        hs2, http = f"{drivers.host}:{drivers.port}", f"{drivers.host}:{drivers.http_port}"
        yield {
            Driver.HTTP: http,
            Driver.PYHIVE: hs2,
            Driver.IMPYLA: hs2,
            Driver.FLIGHT_SQL: flight.address,
            Driver.ADBC: flight.address,
        }


def by_pyhive(address: str, statements: int) -> list[Any]:
    host, _, port = address.rpartition(":")
    with hive.connect(host, port=int(port), auth="NONE", username="joe") as connection:
        found = []
        for _ in range(statements):
            with connection.cursor() as cursor:
                cursor.execute(SQL)
                found += cursor.fetchall()
    return found


def by_impyla(address: str, statements: int) -> list[Any]:
    host, _, port = address.rpartition(":")
    with impala.connect(host, int(port), auth_mechanism="PLAIN", user="joe", password="any") as connection:
        with closing(connection.cursor()) as cursor:
            found = []
            for _ in range(statements):
                cursor.execute(SQL)
                found += cursor.fetchall()
    return found


def by_adbc(address: str, statements: int) -> list[Any]:
    with closing(adbc.connect(f"grpc://{address}", autocommit=True)) as connection:
        found = []
        for _ in range(statements):
            with closing(connection.cursor()) as cursor:
                cursor.execute(SQL)
                found += cursor.fetchall()
    return found


BY: dict[Driver, Callable[[str, int], list[Any]]] = {
    Driver.PYHIVE: by_pyhive,
    Driver.IMPYLA: by_impyla,
    Driver.ADBC: by_adbc,
}
PROTOCOLS = {Driver.PYHIVE: Protocol.HS2, Driver.IMPYLA: Protocol.HS2, Driver.ADBC: Protocol.GRPC}


def methods(messages: list[bytes]) -> list[str]:
    """Return the names of calls of Thrift."""
    lengths = [struct.unpack_from(">i", each, 4)[0] for each in messages]
    return [each[8 : 8 + length].decode() for each, length in zip(messages, lengths, strict=True)]


@pytest.mark.parametrize("driver", list(Driver))
def test_every_door_answers(doors: dict[Driver, str], driver: Driver) -> None:
    with closing(connect(driver, doors[driver], {"fusion.cache": "off"})) as conversation:
        first, second = conversation.answer(SQL), conversation.answer(SQL)
        assert conversation.succeeded
    assert len(first) == pytest.approx(len(second), abs=60) != 0
    assert conversation.calls % 2 == 0


@pytest.mark.parametrize("driver", list(Driver))
def test_an_error_ends_a_statement(doors: dict[Driver, str], driver: Driver) -> None:
    def calls(sql: str) -> int:
        before = conversation.calls
        conversation.answer(sql)
        return conversation.calls - before

    with closing(connect(driver, doors[driver], {})) as conversation:
        whole = calls(SQL)
        assert calls("SELEC 1") <= whole
        assert not conversation.succeeded
        assert calls(SQL) == whole
        assert conversation.succeeded


def asked(door: str, run: Callable[[str], object]) -> dict[str, bytes]:
    """Return what a driver of HiveServer2 sends for its last statement, in its order: calls by their names.

    Sequence numbers and handles are taken out. An operation that is asked for its state several times is asked once.
    """
    with recording(Protocol.HS2, door) as (address, recorded):
        run(address)
    found = dict[str, bytes]()
    for number, call in enumerate(recorded.connections[0].asked[SASL_MESSAGES:]):
        (length,) = struct.unpack_from(">i", call, 4)
        name = call[8 : 8 + length].decode()
        if name == "ExecuteStatement":
            found.clear()
        repeated = name if name not in found or name == "GetOperationStatus" else f"{name} {number}"
        found[repeated] = HANDLE.sub(rb"\1handle", call[8 + length + 4 :])
    found.pop("CloseSession", None)
    return {name.partition(" ")[0] if name.startswith("Fetch") else name: call for name, call in found.items()}


@pytest.mark.parametrize("driver", list(HS2_CALLS))
def test_the_calls_are_those_of_the_driver(doors: dict[Driver, str], driver: Driver) -> None:
    def ours(address: str) -> None:
        with closing(connect(driver, address, {})) as conversation:
            conversation.answer(SQL)

    expected = asked(doors[driver], lambda address: BY[driver](address, 1))
    found = asked(doors[driver], ours)
    assert list(found.items()) == list(expected.items())
    assert set(found) == set(HS2_CALLS[driver].methods)


def test_adbc_makes_as_many_calls(doors: dict[Driver, str]) -> None:
    def streams(statements: int) -> int:
        with recording(Protocol.GRPC, doors[Driver.ADBC]) as (address, recorded):
            assert BY[Driver.ADBC](address, statements) == ROWS * statements
        return recorded.connections[0].streams

    with closing(connect(Driver.ADBC, doors[Driver.ADBC], {})) as conversation:
        conversation.answer(SQL)
        assert streams(3) - streams(2) == conversation.calls


@pytest.mark.parametrize("driver", list(BY))
def test_a_recording_plays_to_the_same_client(doors: dict[Driver, str], driver: Driver) -> None:
    with recording(PROTOCOLS[driver], doors[driver]) as (address, recorded):
        assert BY[driver](address, 2) == ROWS * 2
    with replaying(recorded) as address:
        for _ in range(2):  # from its beginning each time
            assert BY[driver](address, 2) == ROWS * 2


def test_frames_are_cut_wherever_pieces_end() -> None:
    frames = [http2.Frame(http2.FrameKind.DATA, 0, 2 * number + 1, bytes(number)) for number in range(40)]
    sent = b"first" + b"".join(frame.encode() for frame in frames)
    for size in (1, 7, 9, 64, len(sent)):
        cutter = http2.Frames(skip=len(b"first"))
        assert [each for at in range(0, len(sent), size) for each in cutter.feed(sent[at : at + size])] == frames
