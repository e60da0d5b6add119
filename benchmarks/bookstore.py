"""The paper's bookstore for benchmarks: made once and kept, registered and described anew for every run."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.claim import RunFailed, step
from metastore.discovery.inspection import inspect
from metastore.store import Metastore
from selector.join_keys import ColumnRef, KeyPair
from statsproc.data.bookstore import Bookstore

DEFAULT_DATA = Path(".fusion/bench")
SEED = 42
TABLES = ("books", "customers", "transactions")
BOOK_SOLD = KeyPair(ColumnRef("transactions", "book_id"), ColumnRef("books", "id"))
_MADE = "made.json"

DataOption = Annotated[Path, typer.Option(help="Folder of the data, which is made once and kept.")]
ScaleOption = Annotated[float, typer.Option(help="Share of the paper's rows.", min=1e-6, max=1.0)]
SeedOption = Annotated[int, typer.Option(help="Of the data and of whatever is chosen by chance.")]


def prepare(data: Path, bookstore: Bookstore) -> Path:
    """Return the folder of a bookstore's tables, made by the real generator where it is not there yet."""
    facts = {"scale": bookstore.scale, "seed": bookstore.seed, "distribution": bookstore.distribution.value}
    folder = data.absolute() / f"{bookstore.distribution.value}-{bookstore.scale:g}-{bookstore.seed}"
    with suppress(OSError, ValueError):
        if json.loads((folder / _MADE).read_text(encoding="utf-8")) == facts:
            return folder
    step(f"making the {bookstore.distribution.value} bookstore at scale {bookstore.scale:g} in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MADE).unlink(missing_ok=True)
    _statsproc(
        "generate",
        *("--out", str(folder)),
        *("--scale", repr(bookstore.scale)),
        *("--seed", str(bookstore.seed)),
        *("--distribution", bookstore.distribution.value),
    )
    (folder / _MADE).write_text(json.dumps(facts), encoding="utf-8")
    return folder


def describe(folder: Path, metastore_url: str, tables: Sequence[str] = TABLES, joined: Sequence[KeyPair] = ()) -> None:
    """Register a bookstore's tables in a metastore and have the real job build their statistics.

    joined: columns that queries have joined before, as a gateway learns them from its first such query.
    """
    with Metastore(metastore_url) as store:
        for table in tables:
            store.catalog.put(inspect(table, folder / table), at=dt.datetime.now(dt.UTC))
        store.keys.learn(joined, source="workload", at=dt.datetime.now(dt.UTC))
    step(f"building the statistics of {', '.join(tables)} in {folder.name}")
    _statsproc("stats", "--metastore", metastore_url, *tables)


def _statsproc(command: str, *arguments: str) -> None:
    """Run the statistics processor's command line; it tells on standard error how far it is."""
    status = subprocess.run(
        [sys.executable, "-P", "-m", "statsproc", command, *arguments], stdout=sys.stderr, check=False
    ).returncode
    if status != 0:
        raise RunFailed(f"statsproc {command} ended with status {status}")
