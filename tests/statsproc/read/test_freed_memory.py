from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COLUMN_BYTES = 3 << 20
COLUMN_PAGES = COLUMN_BYTES // 4096
COLUMNS = 100

# Makes columns one after the other, each of several arrays, and tells how many pages the system had to give for them.
SCRIPT = f"""
import resource, sys
import numpy as np
from statsproc.read.freed_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def column():
    return [np.ones({COLUMN_BYTES}, np.int8) for _ in range(4)]

column()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({COLUMNS}):
    column()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _pages(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library than glibc")
def test_memory_that_was_freed_serves_the_next_column() -> None:
    assert _pages("kept") < COLUMN_PAGES
    assert _pages("returned") > COLUMNS * COLUMN_PAGES
