"""What one of several processes makes says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.machine.sharing import SocketFolder
from gateway.drivers.hs2.operations import Identifier
from gateway.drivers.hs2.registry import owner_of
from gateway.execution.spooling.results import Spool
from gateway.statements import processes
from gateway.statements.processes import Processes, become, owner_named_in
from gateway.statements.statement import new_query_id, number_of, query_of, submitted_s

ALONE = "20260131_235959_1a2b3c4d5e"


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(processes, "_mark", b"")
    become(2)
    yield


@pytest.mark.usefixtures("third")
def test_ids_and_handles_say_whose_they_are() -> None:
    query_id = new_query_id()
    assert owner_named_in(query_id) == 2
    assert owner_named_in(f"/dashboard/queries/{query_id}/timeline") == 2
    assert query_of(number_of(query_id)) == query_id
    assert submitted_s(query_id) is not None
    assert owner_of(Identifier(number_of(query_id)).message()) == 2
    made = Identifier()
    assert owner_of(made.message()) == 2
    assert len(made.guid) == len(number_of(query_id))


def test_one_alone_says_nothing() -> None:
    assert owner_named_in(new_query_id()) is None
    assert len(new_query_id()) == len(ALONE)
    assert query_of(number_of(ALONE)) == ALONE


def test_what_no_other_process_has_is_not_asked_for(tmp_path: Path) -> None:
    several = Processes(1, 3, SocketFolder.opened(tmp_path))
    assert [several.other(owner) for owner in (None, -1, 0, 1, 2, 3)] == [None, None, 0, None, 2, None]


def test_each_process_sweeps_what_is_its_own_and_the_first_what_nobody_has(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "results", limit_bytes=1, row_bytes=1)
    own = {number: f"{ALONE}{number + 1:02x}" for number in range(4)}
    for query_id in (ALONE, *own.values()):
        spool.path(query_id).write_bytes(b"rows")
        (tmp_path / "results" / f"{query_id}.part").write_bytes(b"rows")
    sockets = SocketFolder.opened(tmp_path)
    first, second = Processes(0, 2, sockets), Processes(1, 2, sockets)
    assert spool.keep_only({own[1]}, of=second.has_made) == 1  # its unfinished rows
    assert spool.query_ids() == {ALONE, *own.values()}
    assert spool.keep_only(set(), of=first.has_made) == 2 * 4
    assert spool.query_ids() == {own[1]}
