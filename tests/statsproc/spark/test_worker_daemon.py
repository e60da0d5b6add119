"""Workers are forked with everything loaded, from a process that has no other threads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from statsproc.spark.session import WORKER_DAEMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOADS = """
import os, sys
from statsproc.spark.worker_daemon import LOADED, load
load()
assert not [name for name in LOADED if name not in sys.modules]
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_loading_starts_no_thread() -> None:
    """And prints nothing: what the process writes first is taken for its port."""
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_workers_come_from_it(spark: SparkSession) -> None:
    parent = "open('/proc/%d/cmdline' % __import__('os').getppid()).read().split(chr(0))"
    (command,) = spark.sparkContext.parallelize([parent], 1).map(eval).collect()
    assert WORKER_DAEMON in command
