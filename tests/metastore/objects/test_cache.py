"""Copies of objects: bounded, shared by processes, right after evictions and killed processes."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.object_store_server import ACCESS_KEY, ObjectStoreServer
from engines.files.manifest import Manifest, SnapshotFile, StoredField
from metastore.objects.cache import ObjectCache
from metastore.objects.errors import CacheFull, ObjectUnreadable, StoreUnavailable
from metastore.objects.kinds.s3 import S3Store
from metastore.objects.store import copy_of
from tests.object_store import object_store

FILES, ROWS = 8, 60_000
COLUMNS = ("a", "b", "c")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with object_store(tmp_path_factory.mktemp("server")) as running:
        for number in range(FILES):
            rows = pa.table({name: [hash((name, number, i)) for i in range(ROWS)] for name in COLUMNS})
            with running.store().filesystem.open_output_stream(f"plain/t/{number}.parquet") as sink:
                pq.write_table(rows, sink, compression="none", use_dictionary=False)
        yield running


def manifest_of(server: ObjectStoreServer, folder: Path) -> Manifest:
    filesystem = server.store().filesystem
    files = [filesystem.get_file_info(f"plain/t/{number}.parquet") for number in range(FILES)]
    return Manifest(
        tuple(StoredField(name, name, None, {}) for name in COLUMNS),
        tuple(SnapshotFile(str(copy_of(f"s3://{one.path}", folder)), one.size, ROWS, {}) for one in files),
    )


def sums(manifest: Manifest, column: str) -> list[int]:
    return [sum(pq.read_table(file.path, columns=[column])[column].to_pylist()) for file in manifest.files]


@pytest.fixture
def expected(server: ObjectStoreServer) -> dict[str, list[int]]:
    filesystem = server.store().filesystem
    tables = [pq.read_table(f"plain/t/{number}.parquet", filesystem=filesystem) for number in range(FILES)]
    return {name: [sum(table[name].to_pylist()) for table in tables] for name in COLUMNS}


def test_columns_come_once_and_outlive_the_process(
    server: ObjectStoreServer, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    with cache.reading("m", manifest, server.store(), frozenset({"a"})):
        assert sums(manifest, "a") == expected["a"]
    column_bytes = FILES * ROWS * 8
    assert column_bytes < cache.traffic.bytes < 1.2 * column_bytes
    cache.close()
    again = ObjectCache(tmp_path, 1 << 30)
    with again.reading("m", manifest, server.store(), frozenset({"a"})):
        assert sums(manifest, "a") == expected["a"]
    assert again.traffic.requests == 0
    with again.reading("m", manifest, server.store(), None):
        assert {name: sums(manifest, name) for name in COLUMNS} == expected
    assert again.traffic.bytes < 2.2 * column_bytes
    again.close()


def test_copies_stay_within_their_bytes_whoever_reads(
    server: ObjectStoreServer, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    limit_bytes = int(2.4 * FILES * ROWS * 8)  # not all three columns
    caches = [ObjectCache(tmp_path, limit_bytes) for _ in range(2)]  # as two gateways have
    manifest = manifest_of(server, tmp_path)
    high_water: list[int] = []

    def read(number: int) -> None:
        chance = random.Random(number)  # noqa: S311
        for _ in range(6):
            column = chance.choice(COLUMNS)
            part = Manifest(manifest.fields, tuple(chance.sample(manifest.files, 3)))
            name = ",".join(file.path for file in part.files)
            with chance.choice(caches).reading(name, part, server.store(), frozenset({column})):
                high_water.append(sum(os.stat(file.path).st_blocks * 512 for file in manifest.files if exists(file)))
                which = [manifest.files.index(file) for file in part.files]
                assert sums(part, column) == [expected[column][at] for at in which]

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(read, range(6)))
    assert max(high_water) <= 1.1 * limit_bytes
    for cache in caches:
        cache.close()


def exists(file: SnapshotFile) -> bool:
    return os.path.exists(file.path)


def test_what_is_being_read_is_not_evicted(server: ObjectStoreServer, tmp_path: Path) -> None:
    limit_bytes = int(1.5 * FILES * ROWS * 8)
    cache = ObjectCache(tmp_path, limit_bytes)
    manifest = manifest_of(server, tmp_path)
    stopped = threading.Event()

    def give_up() -> None:
        if stopped.wait(0.01):
            raise TimeoutError

    with cache.reading("m", manifest, server.store(), frozenset({"a"})):
        before = sums(manifest, "a")
        waiting = threading.Thread(target=lambda: _wait_for(cache, manifest, server.store(), give_up))
        waiting.start()
        time.sleep(0.5)
        assert waiting.is_alive()
        assert sums(manifest, "a") == before
        stopped.set()
        waiting.join(10)
        assert not waiting.is_alive()
    with cache.reading("m", manifest, server.store(), frozenset({"b"})):  # now there is room
        pass
    with pytest.raises(CacheFull), cache.reading("m", manifest, server.store(), None):
        pass
    cache.close()


def _wait_for(cache: ObjectCache, manifest: Manifest, store: S3Store, give_up: object) -> None:
    with pytest.raises(TimeoutError), cache.reading("m", manifest, store, frozenset({"b"}), give_up):  # type: ignore[arg-type]
        pass


_READER = """
import sys, time
from pathlib import Path
from tests.metastore.objects.test_cache import *
from benchmarks.object_store_server import ObjectStoreServer
server = ObjectStoreServer(Path(), int(sys.argv[2]), 0, None, sys.argv[4])
cache = ObjectCache(Path(sys.argv[1]), 1 << 30)
manifest = manifest_of(server, Path(sys.argv[1]))
columns = frozenset(sys.argv[3].split(","))
with cache.reading("m", manifest, server.store(), columns):
    print("reading", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_copies_that_are_right_and_holds_nothing(
    server: ObjectStoreServer, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    manifest = manifest_of(server, tmp_path)
    for number in range(4):
        columns = COLUMNS[number % 3]
        process = subprocess.Popen(
            [sys.executable, "-c", _READER, str(tmp_path), str(server.port), columns, server.secret_key],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        if number < 2:
            time.sleep(1.5 + number)  # in the middle of it, perhaps
        else:
            process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
    cache = ObjectCache(tmp_path, int(1.2 * FILES * ROWS * 8))
    for name in COLUMNS:  # one after the other: the killed ones hold nothing
        with cache.reading(name, manifest, server.store(), frozenset({name})):
            assert sums(manifest, name) == expected[name]
    cache.close()


def test_what_a_store_answers_is_told(server: ObjectStoreServer, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    first = manifest.files[0]
    cases = [
        (SnapshotFile(first.path + "x", 10, 1, {}), "is gone"),
        (SnapshotFile(first.path, first.bytes + 1, 1, {}), "somebody replaced it"),
    ]
    for file, words in cases:
        with (
            pytest.raises(ObjectUnreadable, match=words),
            cache.reading(words, Manifest((), (file,)), server.store(), None),
        ):
            pass
    wrong = S3Store("s3://plain", server.endpoint, "us-east-1", ACCESS_KEY, "wrong")
    with pytest.raises(ObjectUnreadable, match="credentials") as refused, cache.reading("w", manifest, wrong, None):
        pass
    assert "wrong" not in str(refused.value).replace("is wrong", "")
    assert "wrong" not in repr(wrong)
    nobody = S3Store("s3://plain", "http://127.0.0.1:9", "us-east-1", ACCESS_KEY, "x")
    with pytest.raises(StoreUnavailable), cache.reading("n", manifest, nobody, None):
        pass
    cache.close()


def test_two_tables_that_do_not_fit_together_are_told(
    server: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metastore.objects.cache.ROOM_S", 1.0)
    cache = ObjectCache(tmp_path, int(1.5 * FILES * ROWS * 8))
    manifest = manifest_of(server, tmp_path)
    with cache.reading("a", manifest, server.store(), frozenset({"a"})):
        with pytest.raises(CacheFull), cache.reading("b", manifest, server.store(), frozenset({"b"})):
            pass
    with cache.reading("b", manifest, server.store(), frozenset({"b"})):
        pass
    with pytest.raises(CacheFull), cache.reading("both", manifest, server.store(), frozenset({"a", "b"})):
        pass
    cache.close()


def test_what_is_read_of_a_partition_stays_for_whoever_reads_the_table(
    server: ObjectStoreServer, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    filesystem = server.store().filesystem
    for number in range(2):
        filesystem.create_dir(f"plain/parts/p={number}")
        filesystem.copy_file(f"plain/t/{number}.parquet", f"plain/parts/p={number}/f.parquet")
    whole = manifest_of(server, tmp_path)
    paths = [str(copy_of(f"s3://plain/parts/p={number}/f.parquet", tmp_path)) for number in range(2)]
    files = tuple(SnapshotFile(path, file.bytes, ROWS, {}) for path, file in zip(paths, whole.files, strict=False))
    table, part = (Manifest(whole.fields, some) for some in (files, files[:1]))
    cache = ObjectCache(tmp_path, 1 << 30)
    with cache.reading("part", part, server.store(), frozenset({"a"})):
        pass
    with cache.reading("table", table, server.store(), frozenset({"a"})):
        assert cache.clear() == 0
        assert sums(table, "a") == expected["a"][:2]
    assert cache.clear() > 2 * ROWS * 8
    cache.close()


def test_empty_copies_go_with_the_last_copy_of_their_table(server: ObjectStoreServer, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    folder = Path(manifest.files[0].path).parent
    with cache.planning(manifest, server.store()):
        assert pq.read_metadata(manifest.files[0].path).num_rows == ROWS
        cache.clear()
        assert len(list(folder.iterdir())) == FILES
    cache.clear()
    assert not folder.exists()
    with cache.reading("m", manifest, server.store(), frozenset({"a"})):
        assert len(list(folder.iterdir())) == FILES
    cache.close()


def test_copies_that_somebody_deleted_or_emptied_are_fetched_again(
    server: ObjectStoreServer, tmp_path: Path, expected: dict[str, list[int]]
) -> None:
    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    with cache.reading("m", manifest, server.store(), frozenset({"a"})):
        pass
    os.unlink(manifest.files[0].path)
    with open(manifest.files[1].path, "wb") as emptied:
        emptied.truncate(manifest.files[1].bytes)
    with cache.reading("again", manifest, server.store(), frozenset({"a"})):
        assert sums(manifest, "a") == expected["a"]
    cache.close()


def test_a_full_disk_is_told(server: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ObjectUnreadable, match="disk is full"), cache.reading("m", manifest, server.store(), None):
        pass
    monkeypatch.undo()
    with cache.reading("m", manifest, server.store(), None):
        pass
    cache.close()


def test_a_statement_that_is_cancelled_does_not_wait_for_its_store(server: ObjectStoreServer, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 1 << 30)
    manifest = manifest_of(server, tmp_path)
    begun_s = time.monotonic()

    def cancelled() -> None:
        if time.monotonic() > begun_s + 1:
            raise TimeoutError

    server.pause()
    try:
        with pytest.raises(TimeoutError), cache.reading("m", manifest, server.store(), None, cancelled):
            pass
        assert time.monotonic() - begun_s < 5
    finally:
        server.resume()
    with cache.reading("m", manifest, server.store(), None):
        pass
    cache.close()
