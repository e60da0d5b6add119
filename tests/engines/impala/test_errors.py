"""Impala's texts against the classes that people decided on, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.errors import EngineError, EngineFault, EngineUnavailable, MemoryExceeded

pytest.importorskip("impala", reason="impyla is not installed: pip install fusion-sql-gateway[impala]")

from impala.error import HiveServer2Error, HttpError, OperationalError  # type: ignore[import-untyped]
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]

from engines.impala.errors import CoordinatorLost, classify, from_text, impala_errors, short_message

LABELS = Path(__file__).with_name("impala_errors.jsonl")
ATTRIBUTION, *CHECKED = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
CLASSES = {kind.__name__: kind for kind in EngineError.__subclasses__()}
QUERY = "d54f1b0ad7a1d9f2:8a1b2c3d00000000"
MIB = 1 << 20


def test_the_set_is_large_and_has_every_class() -> None:
    assert "Apache License 2.0" in ATTRIBUTION["attribution"]
    assert len({entry["text"] for entry in CHECKED}) >= 300
    assert {entry["is"] for entry in CHECKED} == set(CLASSES)


@pytest.mark.parametrize("wrapper", ["{}", f"Query {QUERY} failed:\n{{}}\n", "ERROR: {}"])
def test_every_text_is_what_it_was_decided_to_be(wrapper: str) -> None:
    """No figure but all of them: a text that fails over wrongly runs a statement twice."""
    wrong = []
    for entry in CHECKED:
        found = classify(wrapper.format(entry["text"]))
        if not issubclass(found, CLASSES[entry["is"]]):
            wrong.append((entry["is"], found.__name__, entry["text"]))
    assert wrong == []


def test_numbers_names_and_line_breaks_do_not_matter() -> None:
    memory = (
        "Rejected query from pool root.a: request memory needed {} is greater\nthan pool max mem resources {} (static)."
    )
    assert classify(memory.format("12.00 GB", "1.00 GB")) is classify(memory.format("1 B", "0")) is MemoryExceeded
    folded = "minimum memory reservation on backend 'h-1:27000'\n is greater than memory available to the query"
    assert classify(folded) is MemoryExceeded


@pytest.mark.parametrize("entry", [e for e in CHECKED if e["is"] == "MemoryExceeded"], ids=lambda e: e["text"][:40])
def test_no_word_of_a_statement_looks_like_a_failure_of_the_engine(entry: dict[str, str]) -> None:
    quoted = " ".join(entry["text"].replace("'", "").split())
    for text in (
        f"AnalysisException: Could not resolve column/field reference: '{quoted}'",
        f"ParseException: Syntax error in line 1:\nselect '{quoted}' frm t\n^\nEncountered: IDENTIFIER",
        f"AuthorizationException: User '{quoted}' does not have privileges to execute 'SELECT' on: default.t",
        f"UDF ERROR: String to Date parse failed. Invalid string val: '{quoted}'",
    ):
        assert not classify(text).fails_over, text


def test_what_is_not_known_is_a_fault() -> None:
    assert classify("") is EngineFault
    assert classify("Operation is in ERROR_STATE") is EngineFault
    assert classify("The moon is full") is EngineFault


def test_the_peak_is_read_from_the_trackers() -> None:
    text = (
        f"Query {QUERY} failed:\nMemory limit exceeded: Failed to allocate row batch\n"
        "Memory left in process limit: 5.44 GB\n"
        f"Query({QUERY}): Limit=200.00 MB Reservation=160.00 MB ReservationLimit=160.00 MB OtherMemory=39.50 MB "
        "Total=199.50 MB Peak=200.00 MB\n  Fragment d54f1b0ad7a1d9f2:8a1b2c3d00000000: Reservation=0 Peak=8.00 KB"
    )
    error = from_text(text)
    assert error.message == "Memory limit exceeded: Failed to allocate row batch"
    assert error.peak_bytes == 200 * MIB
    assert from_text("Memory limit exceeded").peak_bytes is None


def test_messages_show_no_paths_and_end_somewhere() -> None:
    said = short_message("File 'hdfs://nn:8020/warehouse/t/part-0.parq' is corrupt: error decoding value at offset 7")
    assert said == "File '...' is corrupt: error decoding value at offset 7"
    assert "/data" not in short_message("Disk I/O error on h:27000: Failed to open /data/warehouse/t/x.parq")
    assert len(short_message("x" * 10_000)) == 500
    assert short_message("\n\n") == "Impala gave no reason"


@pytest.mark.parametrize(
    "error",
    [
        TTransportException(message="Could not connect to any of [('10.0.0.1', 21050)]"),
        TTransportException(message="Bad status: 3 (b'Error validating LDAP user')"),
        HttpError(401, "Unauthorized", b"", {}),
        HttpError(503, "Service Unavailable", b"", {}),
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError("timed out"),
        EOFError(),
    ],
    ids=lambda error: f"{type(error).__name__} {error}"[:50],
)
def test_a_broken_connection_is_a_lost_coordinator(error: Exception) -> None:
    with pytest.raises(CoordinatorLost) as caught, impala_errors():
        raise error
    assert isinstance(caught.value, EngineUnavailable)
    assert caught.value.trips_breaker
    assert caught.value.message.startswith("The connection to Impala was lost or refused: ")


def test_both_ways_in_which_the_driver_tells_an_error_are_read() -> None:
    for raised in (HiveServer2Error, OperationalError):
        with pytest.raises(MemoryExceeded), impala_errors():
            raise raised("Memory limit exceeded: Could not allocate")


def test_bugs_of_our_own_are_not_hidden() -> None:
    with pytest.raises(KeyError), impala_errors():
        raise KeyError("a bug")
