"""The process from which Spark's Python workers are forked, with all that tasks import loaded before.

PySpark's own forks first and imports afterwards, because a library might start threads: every new worker then spends a
second or two of a processor on imports before its first row. Here nothing starts a thread: BLAS has one, as Spark tells
it to, and Arrow's allocator is told to have none in the background.

Spark starts it as ``spark.python.daemon.module``; what it prints on standard output would be taken for its port.
"""

from __future__ import annotations

import gc
import importlib
import os

LOADED = ("pyspark.worker", "statsproc.read.scan", "pyarrow.compute")


def load() -> None:
    """Import what tasks need, and take it out of the garbage collector's sight."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # the pages stay shared, and collections after a task are short


if __name__ == "__main__":
    load()
    from pyspark.daemon import manager

    manager()
