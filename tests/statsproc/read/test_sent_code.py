"""The code that a cluster's workers are sent: it runs where numpy and pyarrow are, and nothing of this project."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from engines.files.listing import data_files
from metastore.discovery.inspection import inspect
from selector.join_keys import Bins
from statsproc.job.reading import columns_of
from statsproc.read import scan
from statsproc.read.scan_scope import everything, pieces
from statsproc.read.task import Wanted
from statsproc.sketches.join_keys import Cut

ROWS = 1_000
WORKER = """
import pickle, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("engines", "gateway", "metastore", "selector", "sql", "statsproc"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
with open(sys.argv[1], "rb") as sent:
    read = pickle.load(sent)
for table, folder, error, plain, summary in read([0]):
    print(error, bool(summary))
"""


@pytest.fixture
def sent_by_value() -> Iterator[None]:
    modules = [importlib.import_module(name) for name in scan._MODULES]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


def _parquet(table: pa.Table, folder: Path) -> None:
    pq.write_table(table, folder / "0.parquet")


def _csv(table: pa.Table, folder: Path) -> None:
    pa_csv.write_csv(table, folder / "0.csv", pa_csv.WriteOptions(quoting_style="none", quoting_header="none"))


@pytest.mark.parametrize("write", [_parquet, _csv])
def test_what_workers_are_sent_needs_nothing_of_ours(write: Any, tmp_path: Path, sent_by_value: None) -> None:
    table = pa.table(
        {
            "id": np.arange(ROWS, dtype=np.int32),
            "title": [f"t{n % 50}" for n in range(ROWS)],
            "price": pa.array([n for n in range(ROWS)], pa.int64()).cast(pa.decimal128(21, 2)),
            "score": np.arange(ROWS) + 0.5,
        }
    )
    (tmp_path / "books").mkdir()
    write(table, tmp_path / "books")
    source = inspect("books", tmp_path / "books").source
    columns = columns_of(source)
    splits = pieces(everything(data_files(tmp_path / "books")), source, columns).splits
    assert splits
    sent = tmp_path / "task"
    cut = Cut(dict.fromkeys(("id", "title", "id,title"), Bins(np.array([0.0, 7.0, np.nextafter(7.0, 8.0)]))))
    wanted = Wanted(columns, tuple(cut.bins), cut, sample_share=0.5, key_share=0.5)
    sent.write_bytes(cloudpickle.dumps(scan._SplitReader([[("books", split) for split in splits]], {"books": wanted})))
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(sent)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.split() == ["None", "True"], done.stdout + done.stderr
