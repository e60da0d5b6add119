"""A process that leases from an admission of another one, and keeps the sum a second time in a file that all share.

    python -m tests.gateway.routing.admission.leasing_process FOLDER NUMBER SECONDS

Each thread adds what it was given after it got it, and takes it off before it gives it back, under a lock of the file
that the kernel releases for a process that is killed.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.errors import EngineBusy
from engines.machine.sharing import Caller, SocketFolder
from gateway.routing.admission.shared import SharedAdmission
from gateway.routing.admission.values import EngineBudget, Pool, Request
from gateway.security.principals import Principal

ENGINE = EngineBudget("fast", slots=5, capacity_bytes=1_000, limit_bytes=500, guest_slots=1, guest_bytes=100, abreast=4)
POOLS = (Pool("etl", memory_bytes=600, slots=3),)
SIZES = (10, 60, 200, 500, 800)
THREADS, PROCESSES = 6, 3
HOST, SUMS = "host", "sums"
_SUM = struct.Struct("qqq")  # of one process: slots, bytes, bytes in the pool


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold the lock of the sums, and yield their file."""
    file = os.open(folder / SUMS, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def sums(file: int) -> list[tuple[int, int, int]]:
    """Return what each process holds."""
    return [_SUM.unpack(os.pread(file, _SUM.size, number * _SUM.size)) for number in range(PROCESSES)]


def add(file: int, number: int, *amounts: int) -> None:
    """Add to what a process holds."""
    before = sums(file)[number]
    set_to(file, number, *(sum(each) for each in zip(before, amounts, strict=True)))


def set_to(file: int, number: int, *amounts: int) -> None:
    """Say what a process holds."""
    os.pwrite(file, _SUM.pack(*amounts), number * _SUM.size)


def run(folder: Path, number: int, seconds: float) -> None:
    """Lease in several threads until the time is over."""
    caller = Caller(SocketFolder.opened(folder).path(HOST))
    admission = SharedAdmission(caller, f"{number}-{os.getpid()}", [ENGINE], POOLS)
    (folder / f"started {number}").touch()
    while len(list(folder.glob("started *"))) < PROCESSES:  # a busy machine starts them one after the other
        time.sleep(0.01)
    until_s = time.monotonic() + seconds

    def lease(chance: random.Random) -> None:
        while time.monotonic() < until_s:
            pool = chance.choice(("etl", ""))
            who = Principal(f"user {chance.randrange(4)}", authenticated=True)
            asked = Request("fast", chance.choice(SIZES), who, pool, expected_s=chance.choice((None, 0.01, 1.0)))
            try:
                with admission.lease(asked, wait_s=chance.choice((0.01, 5.0))) as grant:
                    held_bytes = grant.lease.memory_bytes
                    with locked(folder) as file:
                        add(file, number, 1, held_bytes, held_bytes if pool else 0)
                    time.sleep(chance.random() / 200)
                    wanted_bytes = chance.choice(SIZES)
                    more = wanted_bytes - held_bytes
                    if more > 0 and grant.raise_to(wanted_bytes):
                        with locked(folder) as file:
                            add(file, number, 0, more, more if pool else 0)
                        held_bytes = wanted_bytes
                    with locked(folder) as file:
                        add(file, number, -1, -held_bytes, -held_bytes if pool else 0)
            except EngineBusy:
                continue

    chances = [random.Random(f"{number} {each}") for each in range(THREADS)]  # noqa: S311
    threads = [threading.Thread(target=lease, args=(chance,)) for chance in chances]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
