"""Transfer of parts of objects into their copies, for one statement and one table."""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from engines.files.manifest import Manifest, SnapshotFile
from metastore.objects.errors import ObjectUnreadable
from metastore.objects.index import Index, Victim
from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.ranges import FRAME, Part, merged, parts_of, split, stored_names
from metastore.objects.requests import answered, object_error
from metastore.objects.store import key_of, origin_of

log = logging.getLogger(__name__)

REQUEST_BYTES = 8 << 20
"""Longest range of one request: longer ones are split, and the pieces of large files fetched at once."""
GAP_BYTES = 64 << 10
"""Bytes between two ranges that are fetched with them: they cost less than another request."""
WHOLE_BYTES = 128 << 10
"""Files up to this size are fetched whole, by one request."""
TAIL_BYTES = 16 << 10
"""End of a larger file that is fetched first: it mostly holds all of the footer."""
_MAGIC, _END = b"PAR1", 8
_PUNCH_HOLE = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE


@dataclass(slots=True)
class Traffic:
    """Requests to object stores since the process began, and the bytes that they brought."""

    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, requests: int, size: int) -> None:
        """Count requests and the bytes that they brought."""
        with self._lock:
            self.requests += requests
            self.bytes += size


@dataclass(frozen=True, slots=True)
class Wanted:
    """Columns that a statement reads, as files name them. names, ids: None: all columns."""

    names: frozenset[str] | None
    ids: frozenset[int]

    @classmethod
    def of(cls, manifest: Manifest, columns: frozenset[str] | None) -> Wanted:
        """Return the columns of a table as its files name them. columns: in small letters; None: all."""
        if columns is None:
            return cls(None, frozenset())
        fields = [one for one in manifest.fields if one.name.lower() in columns]
        by_name = frozenset(one.stored for one in fields if one.field_id is None)
        return cls(by_name, frozenset(one.field_id for one in fields if one.field_id is not None))

    def parts(self, file: SnapshotFile) -> list[Part]:
        """Return the parts that are needed of a file whose frame is here."""
        parts = _parts(file)
        if self.names is None:
            return list(parts.values())
        names = stored_names(pq.read_metadata(file.path), self.names, self.ids)
        return [part for name, part in parts.items() if name == FRAME or name in names]


@dataclass(slots=True)
class Transfer:
    """Transfer of one table's parts for one statement.

    copies: folder of all copies.
    reader: id of the statement in the index.
    folder: of the table's copies.
    wanted: columns that it reads.
    require: raises once nobody waits any more.
    sources: objects that it has opened, by the path of the copy.
    may_evict: nobody else lets parts go meanwhile.
    """

    copies: Path
    index: Index
    traffic: Traffic
    reader: str
    folder: str
    manifest: Manifest
    store: ObjectStore
    wanted: Wanted
    require: Callable[[], None]
    sources: dict[str, pa.NativeFile] = field(default_factory=dict)
    may_evict: bool = False

    def needed(self, file: SnapshotFile) -> list[Part]:
        """Return the parts that are needed of a file whose frame is here. Raises FileNotFoundError if it is not."""
        try:
            return self.wanted.parts(file)
        except pa.ArrowInvalid as failure:  # evicted, and made empty for a plan
            self.index.forget(file.path)
            raise FileNotFoundError(file.path) from failure

    def fetch_frame(self, file: SnapshotFile) -> None:
        """Fetch what belongs to no column, or all of a small file. Raises ObjectUnreadable, StoreUnavailable."""
        with self._opened(file) as source:
            whole = file.bytes <= WHOLE_BYTES
            begin = 0 if whole else file.bytes - TAIL_BYTES
            self._copy(file, source, [(begin, file.bytes)])
            footer = file.bytes - _footer_bytes(file)
            if footer < begin:
                self._copy(file, source, [(footer, begin)])
            parts = _parts(file)
            fetched_from = min(begin, footer)
            self._copy(file, source, [(start, end) for start, end in parts[FRAME].ranges if start < fetched_from])
            self._add(file, [part for part in parts.values() if whole or part.name == FRAME])

    def fetch(self, file: SnapshotFile, parts: Sequence[Part]) -> None:
        """Fetch parts of a file, one range after the other. Raises ObjectUnreadable, StoreUnavailable."""
        with self.writing(file, parts) as pieces:
            for piece in pieces:
                piece()

    @contextmanager
    def writing(self, file: SnapshotFile, parts: Sequence[Part]) -> Iterator[Sequence[Callable[[], None]]]:
        """Yield what fetches parts of a file, piece by piece; they are noted once all is done.

        A piece may end later, as that of a statement which was cancelled. Raises ObjectUnreadable, StoreUnavailable.
        """
        with self._opened(file) as source:
            ranges = merged((one for part in parts for one in part.ranges), gap=GAP_BYTES)
            yield [partial(self._copy, file, source, [piece]) for piece in split(ranges, REQUEST_BYTES)]
            self._add(file, parts)

    def _add(self, file: SnapshotFile, parts: Sequence[Part]) -> None:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self.index.add(self.folder, file.path, {part.name: part.bytes for part in parts}, file.version)

    @contextmanager
    def _opened(self, file: SnapshotFile) -> Iterator[pa.NativeFile]:
        """Open an object, and keep all others from writing to its copy. Raises ObjectUnreadable, StoreUnavailable."""
        location = origin_of(Path(file.path), self.copies)
        with _as_object_errors(location, self.store), _locked(Path(file.path), file.bytes):
            source = self.sources.get(file.path)
            if source is None:
                source = self.sources[file.path] = answered(self.store, partial(self._open, key_of(location)))
                self.traffic.add(1, 0)
                if source.size() != file.bytes:
                    raise ObjectUnreadable(
                        f"its file {location} has {source.size():,} bytes, and its log says {file.bytes:,}: somebody "
                        "replaced it"
                    )
            yield source

    def _open(self, key: str) -> pa.NativeFile:
        source = self.store.filesystem.open_input_file(key)
        source.size()  # asks the store
        return source

    def _copy(self, file: SnapshotFile, source: pa.NativeFile, ranges: Iterable[tuple[int, int]]) -> None:
        with (
            _as_object_errors(origin_of(Path(file.path), self.copies), self.store),
            open(os.open(file.path, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=0) as copy,
        ):
            for begin, end in split(ranges, REQUEST_BYTES):
                content = answered(self.store, partial(source.read_at, end - begin, begin))
                if len(content) != end - begin:
                    raise OSError(f"the connection ended after {len(content):,} of {end - begin:,} bytes")
                os.pwrite(copy.fileno(), content, begin)
                self.traffic.add(1, len(content))


def evict(index: Index, victim: Victim) -> None:
    """Give the bytes of a part back, unless it has been fetched again."""
    path = Path(victim.file)
    try:
        with open(path, "r+b") as copy:
            fcntl.flock(copy, fcntl.LOCK_EX)
            if victim.part in index.present([victim.file]).get(victim.file, ()):
                return
            if victim.part == FRAME:
                path.unlink()
                return
            size = os.fstat(copy.fileno()).st_size
            for begin, end in parts_of(pq.read_metadata(path), size)[victim.part].ranges:
                _punch_hole(copy.fileno(), begin, end - begin)
    except FileNotFoundError:
        return
    except (OSError, pa.ArrowException) as failure:
        log.warning("%s cannot be removed from the cache of objects: %s", path, failure)


def sweep(folder: Path) -> None:
    """Delete the empty copies that plans have left in a folder, and empty folders."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            with suppress(OSError), open(os.path.join(place, name), "r+b") as copy:
                fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(copy.fileno()).st_blocks == 0:
                    os.unlink(copy.name)
        with suppress(OSError):
            os.rmdir(place)


def _parts(file: SnapshotFile) -> Mapping[str, Part]:
    return parts_of(pq.read_metadata(file.path), file.bytes)


def _footer_bytes(file: SnapshotFile) -> int:
    """Return the bytes of a file's footer with what closes the file. Raises ObjectUnreadable."""
    with open(file.path, "rb") as copy:
        closing = os.pread(copy.fileno(), _END, file.bytes - _END)
    size = int.from_bytes(closing[:4], "little") + _END
    if closing[4:] != _MAGIC or size > file.bytes:
        raise ObjectUnreadable("one of its files is no Parquet file, or is damaged")
    return size


@contextmanager
def _as_object_errors(location: str, store: ObjectStore) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as failure:
        raise object_error(failure, location, store) from failure


@contextmanager
def _locked(path: Path, size: int) -> Iterator[BinaryIO]:
    """Open a copy of a size, made where it is missing, and keep all others from writing to it."""
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # its folder was empty, and has just been deleted
            continue
        with open(descriptor, "r+b") as copy:
            fcntl.flock(copy, fcntl.LOCK_EX)
            if not _is_at(copy, path):  # evicted since it was opened
                continue
            if os.fstat(copy.fileno()).st_size != size:
                os.ftruncate(copy.fileno(), size)
            yield copy
            return


def _is_at(copy: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(copy.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def is_there(file: SnapshotFile) -> bool:
    """Return True if a file has a copy, whatever is in it."""
    try:
        return os.stat(file.path).st_size == file.bytes
    except OSError:
        return False


def make_empty(path: Path, size: int) -> None:
    """Make a copy in which nothing is yet."""
    with _locked(path, size):
        pass


def _punch_hole(descriptor: int, begin: int, size: int) -> None:
    """Give the blocks of a range back. Raises OSError, where the file system cannot do that among others."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, _PUNCH_HOLE, begin, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
