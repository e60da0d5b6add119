"""What goes wrong with a table's files ends in an error that names the file; everything else goes on."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pq
import pytest

from engines.files.listing import data_files
from metastore.records import JobState, Mode
from statsproc.job.reading import files_of
from statsproc.read.files import FileChunk, FileUnusable, fields_of, look, splits_of, without_root
from statsproc.sketches.column_summary import is_text
from tests.statsproc.runs import Runs

ROWS = 20_000


def _table(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table(
        {"n": random.integers(0, 1 << 50, rows), "s": [f"text {n}" for n in random.integers(0, 1 << 50, rows)]}
    )


def _chunk(path: Path, kind: str = "parquet") -> FileChunk:
    (file,) = data_files(path)
    shape = look(path, kind, "", file_bytes=file.bytes, modified_ns=file.modified_ns)
    (split,) = splits_of(shape, fields_of(shape, {"n": "bigint", "s": "string"}, is_text=is_text))
    return FileChunk(split)


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _spoil(path: Path) -> None:
    """Put garbage over the whole of the data, and leave the footer."""
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"\xa5" * (path.stat().st_size // 2))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [("parquet", _truncate), ("parquet", _spoil), ("parquet", _empty), ("orc", _truncate), ("orc", _empty)],
)
def test_a_corrupt_file_is_named(tmp_path: Path, kind: str, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / f"broken.{kind}"
    if kind == "orc":
        pa_orc.write_table(_table(), path, compression="zstd")
    else:
        pq.write_table(_table(), path, compression="zstd")
    spoil(path)
    with pytest.raises(FileUnusable, match=r"broken\.\w+ cannot be read: ") as failure:
        chunk = _chunk(path, kind)
        for name in ("n", "s"):
            chunk.column(name)
    assert "\n" not in str(failure.value)


def test_a_file_that_goes_or_changes_between_its_footer_and_its_rows(tmp_path: Path) -> None:
    for change in (Path.unlink, lambda path: pq.write_table(_table(10), path), os.utime):
        path = tmp_path / "a.parquet"
        pq.write_table(_table(), path)
        chunk = _chunk(path)
        change(path)
        with pytest.raises(FileUnusable, match=r"a\.parquet (cannot be read|was changed while it was read)"):
            chunk.column("n")


def test_a_file_that_goes_while_it_is_open_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(_table(), path)
    chunk = _chunk(path)
    chunk.column("n")
    path.unlink()
    assert len(chunk.column("n")) == ROWS


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (pa.array(["1"]), "bigint"),
        (pa.array([1]), "string"),
        (pa.array([1.5]), "bigint"),
        (pa.array([1]), "int"),
        (pa.array([1], pa.decimal128(10, 2)), "decimal(10,3)"),
        (pa.array([1], pa.timestamp("us")), "date"),
        (pa.array([[1]]), "bigint"),
    ],
)
def test_a_type_that_is_another(tmp_path: Path, there: pa.Array, here: str) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"n": there}), path)
    shape = look(path, "parquet", "", file_bytes=1, modified_ns=1)
    with pytest.raises(FileUnusable, match=rf"other\.parquet holds column n as .*, but the catalog says {here[:4]}"):
        fields_of(shape, {"n": here}, is_text=is_text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/data/my t/day=1/a.parquet cannot be read", "day=1/a.parquet cannot be read"),
        ("[Errno 13] Permission denied: '/data/my t/a'", "[Errno 13] Permission denied: 'a'"),
        ("/data/my t cannot be read (Permission denied)", "my t cannot be read (Permission denied)"),
        ("no file:/data/my%20t/a.csv and no file:///data/my%20t/b.csv", "no a.csv and no b.csv"),
        ("/data/my table/a.parquet and /data/my t.old", "/data/my table/a.parquet and /data/my t.old"),
    ],
)
def test_a_file_is_named_by_its_place_in_the_table(text: str, told: str) -> None:
    assert without_root(text, Path("/data/my t")) == told


def test_a_table_of_one_file_is_named_by_it() -> None:
    root = Path("/data/t.parquet")
    assert without_root(f"{root} cannot be read", root) == "t.parquet cannot be read"


def test_columns_that_differ_in_case_only(tmp_path: Path) -> None:
    """Each of the catalog's is the one of its own name, where there is one; else case does not matter."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1], "N": ["one"], "M": [2.0]}), path)
    shape = look(path, "parquet", "", file_bytes=1, modified_ns=1)
    found = fields_of(shape, {"N": "string", "n": "bigint", "m": "double"}, is_text=is_text)
    assert [(field.name, field.stored, field.text) for field in found] == [
        ("N", "N", True),
        ("n", "n", False),
        ("m", "M", False),
    ]


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everything")
def test_a_file_that_nobody_may_read(tmp_path: Path) -> None:
    """Root may read everything, unless it gives the right away."""
    path = tmp_path / "secret.parquet"
    pq.write_table(_table(10), path)
    path.chmod(0)
    script = (
        "import pathlib, sys; from statsproc.read.files import look; "
        "look(pathlib.Path(sys.argv[1]), 'parquet', '', file_bytes=1, modified_ns=1)"
    )
    command = [sys.executable, "-c", script, str(path)]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("statsproc.read.files.FileUnusable: ")
    assert "secret.parquet cannot be read: " in last
    assert "Permission denied" in last


@pytest.mark.spark
def test_a_table_that_fails_does_not_stop_the_others(runs: Runs) -> None:
    names = ("first", "truncated", "spoiled", "stripes", "retyped", "gone", "gzip", "last")
    for name in names:
        if name not in ("gzip", "stripes"):
            runs.write(name, _table(), "a.parquet")
    (runs.folder / "stripes").mkdir()
    pa_orc.write_table(_table(), runs.folder / "stripes" / "a.orc", compression="zstd")
    (runs.folder / "gzip").mkdir()
    with gzip.open(runs.folder / "gzip" / "a.csv.gz", "wt") as text:
        text.write("1,x\n" * 1000)
    for name in names:
        runs.register(name)
    runs.run(*names)
    assert runs.errors == {}
    before = {name: runs.current(name) for name in names}

    _truncate(runs.folder / "truncated" / "a.parquet")
    _spoil(runs.folder / "spoiled" / "a.parquet")
    _spoil(runs.folder / "stripes" / "a.orc")  # kills the worker that reads it
    runs.write("retyped", pa.table({"n": ["one"], "s": ["x"]}), "b.parquet")
    (runs.folder / "gone" / "a.parquet").unlink()
    (runs.folder / "gone").rmdir()
    whole = (runs.folder / "gzip" / "a.csv.gz").read_bytes()
    (runs.folder / "gzip" / "a.csv.gz").write_bytes(whole[:10] + b"\xa5" * 40)
    job = runs.run(*names, "nobody")

    assert set(runs.errors) == {"truncated", "spoiled", "stripes", "retyped", "gone", "gzip", "nobody"}
    for name, file in {
        "truncated": "a.parquet",
        "spoiled": "a.parquet",
        "stripes": "a.orc",
        "retyped": "b.parquet",
        "gzip": "a.csv.gz",
    }.items():
        assert re.match(rf"{file} (cannot be read: |holds )", runs.errors[name])
    assert runs.errors["retyped"].endswith(
        "holds column n as string, but the catalog says bigint: write the file again, or register the table again"
    )
    assert runs.errors["gone"] == "there is no gone any more: register the table where its files are"
    assert runs.errors["nobody"] == "table nobody is not registered"
    assert all("\n" not in error for error in runs.errors.values())
    assert all(str(runs.folder) not in error for error in runs.errors.values())  # clients read them
    assert job.state is JobState.FAILED
    for table in job.tables:
        assert table.error == runs.errors.get(table.table)
        assert table.state is (JobState.FAILED if table.error else JobState.FINISHED)
        assert f"{table.table}: {table.error}" in (job.error or "") or table.error is None
    told = [(how, what) for how, what in runs.recorder.events if what in names]
    assert sorted(told) == sorted(("failed" if name in runs.errors else "finished", name) for name in names)
    for name in names:
        assert runs.current(name).version == before[name].version + (name not in runs.errors)
        assert runs.current(name).columns.keys() == before[name].columns.keys()
        assert runs.store.statistics.parts(name)


@pytest.mark.spark
def test_an_incremental_job_that_meets_a_corrupt_file_keeps_its_parts(runs: Runs) -> None:
    runs.write("t", _table(), "day=1/a.parquet")
    runs.register("t")
    first = runs.incremental("t")
    path = runs.write("t", _table(), "day=2/a.parquet")
    _truncate(path)
    runs.run("t", mode=Mode.INCREMENTAL)
    assert runs.errors["t"].startswith("day=2/a.parquet cannot be read: ")
    assert runs.current("t").version == first.version
    assert [part.folder for part in runs.store.statistics.part_marks("t")] == ["day=1"]
    runs.write("t", _table(), "day=2/a.parquet")
    assert runs.incremental("t").rows == 2 * ROWS


@pytest.mark.spark
def test_files_deleted_while_the_job_runs(runs: Runs) -> None:
    """A race against a real job: it ends well with all rows, or with an error that names a file."""
    names = [f"{number:02}.parquet" for number in range(16)]
    table = _table(60_000)
    for name in names:
        runs.write("t", table, name)
    runs.register("t")
    before = runs.statistics("t")
    source = runs.store.catalog.get("t")
    assert source is not None

    def delete_the_last() -> None:
        while len(files_of(source.source)) == len(names):
            job = runs.store.jobs.open_jobs()
            if job and job[0].tables[0].state is JobState.RUNNING:
                (runs.folder / "t" / names[-1]).unlink()
            time.sleep(0.005)

    thread = threading.Thread(target=delete_the_last)
    thread.start()
    runs.run("t")
    thread.join()
    if runs.errors:
        assert names[-1] in runs.errors["t"]
        assert runs.current("t").version == before.version
    else:
        assert runs.current("t").rows in (before.rows, before.rows - table.num_rows)
    assert runs.statistics("t").rows == before.rows - table.num_rows
