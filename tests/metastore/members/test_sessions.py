"""Sessions of drivers that any gateway continues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.members.sessions import SavedSession
from metastore.store import Metastore

ANN = SavedSession("a" * 64, "ann", True, "192.0.2.7", "00ff", {"session": {"database": "sales"}})


def test_a_session_is_as_it_was_written_last(store: Metastore) -> None:
    sessions = store.driver_sessions
    assert sessions.get(ANN.id) is None
    sessions.add(ANN, keep_s=60)
    assert sessions.get(ANN.id) == ANN
    state = {"session": {"database": "hr"}}
    sessions.change(ANN.id, state, keep_s=60)
    assert sessions.get(ANN.id) == replace(ANN, state=state)
    sessions.remove(ANN.id)
    sessions.change(ANN.id, state, keep_s=60)
    assert sessions.get(ANN.id) is None, "one that was closed does not come back"


@pytest.mark.parametrize("is_used", [False, True])
def test_a_session_that_nobody_uses_expires(store: Metastore, is_used: bool) -> None:
    sessions = store.driver_sessions
    sessions.add(ANN, keep_s=-1)
    sessions.add(replace(ANN, id="other"), keep_s=60)
    if is_used:
        assert set(sessions.use([ANN.id, "closed"], keep_s=60)) == {ANN.id}
    assert (sessions.get(ANN.id) is not None) is is_used
    assert sessions.remove_expired() == int(not is_used)
    assert sessions.remove_expired() == 0
    assert sessions.get("other") is not None
