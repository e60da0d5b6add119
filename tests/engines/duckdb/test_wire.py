"""Frames between the pool and a worker, where their sender fails in its own thread."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

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
        received = wire.Receiver(theirs)
        frames = [received.receive() for _ in range(3)]
    assert [kind for kind, _ in frames] == [wire.Frame.BATCH] * 3
    assert [wire.decode_rows(*frame, BATCH.schema) for frame in frames] == [BATCH[:1], BATCH[:2], BATCH]


ENUM = pa.array(["a", "b", "a"]).dictionary_encode()


@pytest.mark.parametrize(
    ("batch", "kind"),
    [
        (BATCH, wire.Frame.ROWS),
        (pa.record_batch({"text": ["x" * 20_000]}), wire.Frame.BATCH),
        (pa.record_batch({"enum": ENUM}), wire.Frame.BATCH),
        (pa.record_batch({"inner": pa.StructArray.from_arrays([ENUM], ["enum"])}), wire.Frame.BATCH),
        (pa.record_batch({"inner": pa.ListArray.from_arrays([0, 3], ENUM)}), wire.Frame.BATCH),
    ],
)
def test_a_small_result_is_one_message_unless_it_takes_dictionaries(batch: pa.RecordBatch, kind: wire.Frame) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = wire.Sender(ours)
        with wire.BatchSender(worker) as sender:
            sender.send(batch)
        worker.send_json(wire.Frame.END, {})
        frame = wire.Receiver(theirs).receive()
    assert frame[0] is kind
    assert wire.decode_rows(*frame, batch.schema) == batch


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


WITHOUT_ROOM = """
import resource, socket, threading
import pyarrow as pa
from engines.duckdb import wire
from engines.duckdb.worker.instance import address_space_bytes

ours, theirs = socket.socketpair()
batches = wire.BatchSender(wire.Sender(ours))
resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes() + 1_000_000, resource.RLIM_INFINITY))
for _ in range(2):
    with batches as sender:
        for number in range(3):
            sender.send(pa.record_batch({"id": [number]}))
    receiver = wire.Receiver(theirs)
    frames = [receiver.receive() for _ in range(3)]
    assert [wire.decode_rows(*frame, None)["id"].to_pylist() for frame in frames] == [[0], [1], [2]]
"""
"""A thread's stack takes more."""


@pytest.mark.skipif(sys.platform != "linux", reason="a process's address space is limited on Linux alone")
def test_batches_arrive_where_there_is_no_room_for_another_thread() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_ROOM], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_frames_that_come_together_or_in_pieces_arrive_as_they_were_sent() -> None:
    payloads = [b"x" * size for size in (0, 1, 16_375, 16_376, 16_384, 40_000, 3, 0, 200_000, 5)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = wire.Sender(ours)

        def send() -> None:
            for number, payload in enumerate(payloads):
                sender.send(wire.Frame.BATCH, payload)
                sender.hold(wire.Frame.SCHEMA, payload[:7])  # with the one after it
                if number % 3 == 0:
                    time.sleep(0.01)
            sender.send_json(wire.Frame.END, {})

        thread = threading.Thread(target=send)
        thread.start()
        frames = wire.Receiver(theirs)
        for payload in payloads:
            assert [(kind, bytes(held)) for kind, held in (frames.receive(wait_s=5), frames.receive(wait_s=5))] == [
                (wire.Frame.BATCH, payload),
                (wire.Frame.SCHEMA, payload[:7]),
            ]
        assert frames.receive(wait_s=5)[0] is wire.Frame.END
        with pytest.raises(TimeoutError):
            frames.receive(wait_s=0.01)
        thread.join()


def test_a_frame_that_is_held_waits_for_the_next() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, frames = wire.Sender(ours), wire.Receiver(theirs)
        sender.hold(wire.Frame.SCHEMA, b"schema")
        with pytest.raises(TimeoutError):
            frames.receive(wait_s=0.05)
        sender.send_json(wire.Frame.ERROR, {})
        assert [frames.receive(wait_s=5)[0] for _ in range(2)] == [wire.Frame.SCHEMA, wire.Frame.ERROR]


def test_a_peer_that_takes_nothing_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.wait_for_sending(ours, 0.1)
        with pytest.raises(wire.PeerGone):
            wire.send(ours, wire.Frame.COMMAND, bytes(4 << 20))
