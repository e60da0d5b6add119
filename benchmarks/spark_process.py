"""A Spark in a process of its own, warm when the clock starts, and the memory that it takes.

Each side of a comparison gets a fresh one with the same settings: neither inherits the other's compiled code, settings
or heap, and the peak of the process and of all that it started is that side's own.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import psutil

from benchmarks.claim import RunFailed
from metastore.database.connection import sqlite_url
from metastore.store import Metastore
from statsproc.spark.session import SparkFailed, SparkUnavailable, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
DRIVER_MEMORY = "2g"  # as ``statsproc stats`` has it where nothing else is said
SAMPLES_PER_S = 10

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a call in the process works with. store: a metastore of its own, empty at first."""

    spark: SparkSession
    store: Metastore


@dataclass(frozen=True, slots=True)
class Peak:
    """Resident bytes of the JVM with the Python workers, and of the Python process that drives them."""

    spark_bytes: int
    driver_bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call took. wall_s: as the process saw it; cpu_s: of it and of all that it started, on all processors."""

    wall_s: float
    cpu_s: float


_held = ExitStack()  # what a process of ours must close, and
_open: list[Workplace] = []  # what it works with


class SparkProcess:
    """Calls functions in a process that holds a Spark session."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor
        self._process = psutil.Process(self.call(_process_id))
        self._spark_bytes = self._driver_bytes = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def call(self, function: Callable[Concatenate[Workplace, P], R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run a function of a module there and return what it returns."""
        return self._executor.submit(_timed, function, arguments, options).result()[1]

    def timed(
        self, function: Callable[Concatenate[Workplace, P], object], *arguments: P.args, **options: P.kwargs
    ) -> Cost:
        """Run a function there; returns what it took, without the way there and back."""
        before_s = self._cpu_s()
        wall_s, _ = self._executor.submit(_timed, function, arguments, options).result()
        return Cost(wall_s, self._cpu_s() - before_s)

    @property
    def peak(self) -> Peak:
        """The most that was seen so far."""
        return Peak(self._spark_bytes, self._driver_bytes)

    def close(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self._sampler.join()

    def _cpu_s(self) -> float:
        return sum(_cpu_s(process) for process in (self._process, *self._process.children(recursive=True)))

    def _sample(self) -> None:
        while not self._ended.wait(1 / SAMPLES_PER_S):
            try:
                self._driver_bytes = max(self._driver_bytes, self._process.memory_info().rss)
                below = sum(_resident_bytes(child) for child in self._process.children(recursive=True))
                self._spark_bytes = max(self._spark_bytes, below)
            except psutil.NoSuchProcess:
                return


def _cpu_s(process: psutil.Process) -> float:
    """Return the seconds of a process and of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


@contextmanager
def spark_process() -> Iterator[SparkProcess]:
    """Start a Spark, and end it with all that it started."""
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work_dir:
        executor = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(Path(work_dir),),
        )
        with executor:
            try:
                process = SparkProcess(executor)
                try:
                    yield process
                finally:
                    process.close()
                    executor.submit(_stop).result()
            except (SparkFailed, SparkUnavailable, BrokenProcessPool) as failure:
                raise RunFailed(f"Spark: {failure}") from failure


def _start(work_dir: Path) -> None:
    store = _held.enter_context(Metastore(sqlite_url(work_dir / "metastore.db")))
    spark = _held.enter_context(open_session(work_dir, master=MASTER, driver_memory=DRIVER_MEMORY))
    _open.append(Workplace(spark, store))


def _stop() -> None:
    _held.close()


def _process_id(workplace: Workplace) -> int:
    return os.getpid()


def _timed(function: Callable[..., R], arguments: tuple[object, ...], options: Mapping[str, object]) -> tuple[float, R]:
    begun = time.perf_counter()
    returned = function(_open[0], *arguments, **options)
    return time.perf_counter() - begun, returned
