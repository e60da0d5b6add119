"""Frames between the pool and a worker, where their sender fails in its own thread."""

from __future__ import annotations

import socket

import pyarrow as pa
import pytest

from engines.duckdb import wire

BATCH = pa.record_batch({"id": [1, 2, 3]})
MANY = 10  # more than may wait


def test_batches_arrive_in_order() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with wire.BatchSender(wire.Sender(ours)) as sender:
            for size in range(1, 4):
                sender.send(BATCH.slice(0, size))
        frames = [wire.receive(theirs) for _ in range(3)]
    assert [kind for kind, _ in frames] == [wire.Frame.BATCH] * 3
    assert [wire.decode_batch(payload).num_rows for _, payload in frames] == [1, 2, 3]


def test_a_peer_that_is_gone_is_told() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(wire.PeerGone), wire.BatchSender(wire.Sender(ours)) as sender:
        for _ in range(MANY):
            sender.send(BATCH)


def test_memory_that_is_not_to_be_had_is_told_and_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> pa.Buffer:
        raise pa.ArrowMemoryError(f"malloc of size {size} failed")

    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(pa.ArrowMemoryError), wire.BatchSender(wire.Sender(ours)) as sender:
        monkeypatch.setattr(pa, "allocate_buffer", refuse)
        for _ in range(MANY):
            sender.send(BATCH)
    assert theirs.fileno() == -1
