"""Files of ours are whole, or writing them fails."""

from __future__ import annotations

import resource
import signal
from multiprocessing import get_context
from pathlib import Path

from engines.machine.private_files import write_private

ROOM_BYTES = 4096


def _write_where_room_ends(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))
    try:
        write_private(path, bytes(2 * ROOM_BYTES))
    except OSError:
        return
    raise SystemExit("half a file was written, and nothing told so")


def test_a_file_that_only_half_fits_is_an_error(tmp_path: Path) -> None:
    process = get_context("spawn").Process(target=_write_where_room_ends, args=(tmp_path / "half",))
    process.start()
    process.join(30)
    assert process.exitcode == 0
