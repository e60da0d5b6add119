"""A real object store for tests, one for the whole run of a process; tests skip where its program is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.object_store_server import NotInstalled, ObjectStoreServer, running_object_store


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStoreServer]:
    """Start a server and end it afterwards; without its program, the test is skipped."""
    try:
        with running_object_store(folder) as server:
            yield server
    except NotInstalled as missing:
        pytest.skip(str(missing))
