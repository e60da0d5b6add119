"""One policy over two engines: after a failover, in the records, and for whoever looks on."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engines.errors import MemoryExceeded
from engines.scripted import Script
from gateway.presentation.disclosure import HIDDEN_TEXT, visible
from gateway.security.access.control import AccessControl
from gateway.security.access.policy_file import PolicyFile
from gateway.security.principals import Principal, Role
from gateway.statements.statement import Statement
from metastore.records import QueryRecord
from selector.decision import WITHHELD, ReasonCode
from sql.errors import AccessDenied, UnknownTable
from tests.gateway.conftest import LIMIT, Scripted

Build = Callable[..., Scripted]

POLICY = b"""
closed = "transactions"
[[filter]]
on = "books"
where = "category = 'category 3' AND publisher <> current_user()"
[[mask]]
on = "books"
column = "price"
value = "0"
"""
FILTER = "category = 'category 3' AND publisher <> 'ann'"
MASK = "CAST0 AS DOUBLE AS price"
SQL = "SELECT id, price FROM books WHERE price < 10"
ONE = pa.RecordBatch.from_pydict({"id": [1], "price": [0.0]})
PLAN = json.dumps([{"name": "READ_PARQUET", "extra_info": {"Projections": "id", "Estimated Cardinality": "9"}}])
ANSWER = Script(steps=(ONE,), plan=PLAN)
FULL = Script(steps=(MemoryExceeded("full", peak_bytes=LIMIT),), schema=ONE.schema, plan=PLAN)
ANN, BOB = (Principal(name, Role.WRITER, authenticated=True) for name in ("ann", "bob"))
ROOT = Principal("root", Role.ADMIN, authenticated=True)


@pytest.fixture
def house(scripted: Build, tmp_path: Path) -> Scripted:
    built = scripted()
    policy = tmp_path / "policy.toml"
    policy.write_bytes(POLICY)
    built.gateway.catalog.rights = built.gateway.policy._access = AccessControl(PolicyFile(policy))
    return built


def finished(house: Scripted, user: Principal, sql: str = SQL) -> QueryRecord:
    return house.gateway.coordinator.submit(Statement(sql=sql, principal=user)).done.result(timeout=30)


def asked(house: Scripted) -> list[str]:
    """Return the texts that engines got, without brackets and quotes, which each writes in its own way."""
    return [re.sub(r'[`"()]', "", call.sql) for engine in (house.fast, house.dependable) for call in engine.asked]


def test_the_engine_that_takes_over_gets_the_same_part(house: Scripted) -> None:
    house.fast.script("books", FULL)
    house.dependable.script("books", ANSWER)
    record = finished(house, ANN)
    assert [attempt.engine for attempt in record.attempts] == ["fast", "dependable"]
    texts = asked(house)
    assert len(texts) == 2
    for text in texts:
        assert FILTER in text and MASK in text


def test_what_was_learned_of_one_part_is_not_said_of_another(house: Scripted) -> None:
    house.fast.script("books", FULL)
    house.dependable.script("books", ANSWER)
    first, second = (finished(house, user) for user in (ANN, BOB))
    assert first.fingerprint != second.fingerprint
    assert finished(house, ROOT).fingerprint not in (first.fingerprint, second.fingerprint)


def test_what_was_expected_is_shown_to_operators_alone(house: Scripted) -> None:
    for engine in (house.fast, house.dependable):
        engine.script("books", ANSWER)
    record = finished(house, ANN)
    policy = house.gateway.policy
    own = visible(record, ANN, policy).decision
    assert own is not None and {reason.text for reason in own.reasons} == {WITHHELD}
    assert own.estimate.peak_bytes is None and not own.prices
    assert visible(record, ANN, policy).sql == SQL
    assert visible(record, BOB, policy).sql == HIDDEN_TEXT
    full = visible(record, ROOT, policy).decision
    assert full is not None and full.reasons[-1].code is ReasonCode.PARTIAL_ACCESS
    assert "books" in full.reasons[-1].text
    _, explained = house.gateway.coordinator.explain(Statement(sql=SQL, principal=ANN))
    assert explained.estimate.peak_bytes is None


def test_a_statement_that_is_remembered_is_not_another_users(house: Scripted) -> None:
    """The text is read once for each set of rights, and again once a right has changed."""
    house.fast.script("books", ANSWER)
    for user in (ROOT, ANN, BOB, ANN, ROOT):
        finished(house, user)
    texts = asked(house)
    assert sum(FILTER in text for text in texts) >= 1
    assert any("category 3" not in text for text in texts)
    assert any("'bob'" in text for text in texts)


def test_a_change_of_the_policy_holds_for_the_next_statement(house: Scripted, tmp_path: Path) -> None:
    house.fast.script("transactions", ANSWER)
    with pytest.raises(UnknownTable):
        house.gateway.coordinator.classify(Statement(sql="SELECT id FROM transactions", principal=ANN))
    inserts = b"[[grant]]\non = 'transactions'\nto = 'ann'\nprivileges = 'INSERT'\n"
    (tmp_path / "policy.toml").write_bytes(POLICY + inserts)
    with pytest.raises(AccessDenied, match="ann may not read transactions"):
        house.gateway.coordinator.classify(Statement(sql="SELECT id FROM transactions", principal=ANN))
    (tmp_path / "policy.toml").write_bytes(POLICY + b"[[grant]]\non = 'transactions'\nto = 'ann'\n")
    house.gateway.coordinator.classify(Statement(sql="SELECT id FROM transactions", principal=ANN))
    with pytest.raises(UnknownTable):
        unproved = Principal("ann", Role.READER)
        house.gateway.coordinator.classify(Statement(sql="SELECT id FROM transactions", principal=unproved))


def test_what_was_read_and_refused_is_in_the_log_with_the_version_of_the_policy(
    house: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fusion.security")
    house.gateway.coordinator.classify(Statement(sql=SQL, principal=ANN))
    with pytest.raises(AccessDenied):
        house.gateway.coordinator.classify(Statement(sql="SHOW PARTITIONS books", principal=ANN))
    read, refused = [record for record in caplog.records if getattr(record, "fields", {}).get("event") == "access"]
    version = house.gateway.catalog.rights.rules().version
    assert read.getMessage() == "ann (here) may read a part of books"
    assert refused.getMessage().startswith("ann (here) may not do this: ann may see a part of books alone")
    assert {vars(record)["fields"]["policy"] for record in (read, refused)} == {version}
