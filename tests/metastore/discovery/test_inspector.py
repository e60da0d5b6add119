"""A look at files in a child process: the same answers, and files that end or hold up their readers end it alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.discovery import formats
from metastore.discovery.inspection import InspectionFailed
from metastore.discovery.inspection import inspect as inspect_here
from metastore.discovery.inspector import Inspector, Limits
from sql.tables import Column

FROZEN_S = 2.0


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    inspector = Inspector()
    yield inspector
    inspector.close()


def _table(folder: Path) -> Path:
    for number in range(2):
        (folder / f"p={number}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2], "t": [{"a b": 1}, None]}), folder / f"p={number}" / "a.parquet")
    return folder


def test_it_says_what_inspect_says(inspector: Inspector, tmp_path: Path) -> None:
    table = _table(tmp_path / "t")
    (tmp_path / "text.csv").write_text("1|2024-01-01\n")
    columns = [Column("id", "bigint"), Column("day", "date")]
    options = {"delimiter": "|", "header": "false"}
    assert inspector.inspect("t", table) == inspect_here("t", table)
    assert inspector.inspect("x", tmp_path / "text.csv", columns=columns, options=options) == inspect_here(
        "x", tmp_path / "text.csv", columns=columns, options=options
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"location": "nowhere"}, "not an absolute path"),
        ({"location": "/nowhere"}, "there is no /nowhere: check the spelling"),
        ({"location": "s3://bucket/t"}, "not on this machine"),
        ({"location": "/proc/kmsg"}, "not on a disk"),
        ({"location": "/proc/self/environ"}, "not on a disk"),
        ({"location": "/dev/zero"}, "neither a folder nor a plain file"),
        ({"format": "iceberg"}, "there is no iceberg table"),
        ({"options": {"path": "/etc/passwd"}}, "not an option"),
    ],
)
def test_what_cannot_be_a_table_is_refused(
    inspector: Inspector, tmp_path: Path, arguments: dict[str, object], why: str
) -> None:
    wanted = {"location": _table(tmp_path / "t"), **arguments}
    with pytest.raises(InspectionFailed, match=why):
        inspector.inspect("t", **wanted)  # type: ignore[arg-type]


def test_json_that_crashes_arrow_ends_the_child_alone(inspector: Inspector, tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text('{"a":' + "[" * 150_000 + "]" * 150_000 + "}\n")
    warm = inspector.pid
    with pytest.raises(InspectionFailed, match="ended the process"):
        inspector.inspect("deep", deep)
    assert inspector.pid == warm or warm is None
    assert inspector.inspect("deep", deep, columns=[Column("a", "string")]).files == 1


def test_a_file_that_never_answers_holds_up_nobody(inspector: Inspector, tmp_path: Path) -> None:
    """A pipe is opened without waiting; where something waits all the same, as a disk may, the child ends by itself."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(InspectionFailed, match="not a plain file"), formats.opened(pipe):
        pass
    frozen = Inspector(Limits(file_s=FROZEN_S, start_s=0.0))
    try:
        with contextlib.suppress(InspectionFailed):  # a busy machine may take longer to start a process
            frozen.inspect("t", _table(tmp_path / "t"))
        assert frozen.pid is not None
        psutil.Process(frozen.pid).suspend()
        with pytest.raises(InspectionFailed, match="took longer"):
            frozen.inspect("t", tmp_path / "t")
        psutil.Process(frozen.pid).resume()
        assert frozen.inspect("t", tmp_path / "t").rows == 4
    finally:
        frozen.close()


def test_a_footer_that_asks_for_memory_does_not_get_it(inspector: Inspector, tmp_path: Path) -> None:
    """The length of Avro's header is whatever the file says."""
    hostile = tmp_path / "a.avro"
    hostile.write_bytes(b"Obj\x01\x02\x16avro.schema" + b"\xfe\xff\xff\xff\xff\xff\x1f" + b"x" * 64)
    with pytest.raises(InspectionFailed):
        inspector.inspect("t", hostile)
    (tmp_path / "b.avro").write_bytes(_avro_nested(100_000))
    with pytest.raises(InspectionFailed, match=r"Avro|deep|ended"):
        inspector.inspect("t", tmp_path / "b.avro")


def _avro_nested(levels: int) -> bytes:
    schema = b'{"type":"array","items":' * levels + b'"int"' + b"}" * levels
    size = len(schema) << 1
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"Obj\x01\x02\x16avro.schema" + bytes(length) + schema + b"\x00" + b"0" * 16


def test_many_look_at_once_and_a_killed_process_is_replaced(inspector: Inspector, tmp_path: Path) -> None:
    table = _table(tmp_path / "t")
    rows: list[int | None] = []
    threads = [threading.Thread(target=lambda: rows.append(inspector.inspect("t", table).rows)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == [4] * 20
    assert inspector.pid is not None
    os.kill(inspector.pid, signal.SIGKILL)
    assert inspector.inspect("t", table).rows == 4


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from metastore.discovery.inspector import Inspector; own = Inspector(); "
        f"own.inspect('t', {str(_table(tmp_path / 't'))!r}); print(own.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        warm = psutil.Process(json.loads(parent.stdout.readline()))
        parent.kill()
    give_up_s = time.monotonic() + 10
    while warm.is_running() and warm.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up_s:
        time.sleep(0.05)
    assert not warm.is_running() or warm.status() == psutil.STATUS_ZOMBIE
