"""What this machine has, what is missing, and how to get it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from engines.adapter import CheckResult
from gateway.server.own_files import exposed
from gateway.settings import Settings
from selector.wording import mebibytes

MINIMUM_PYTHON = (3, 11)


def examine(settings: Settings) -> list[CheckResult]:
    """Look at everything that a gateway with these settings needs."""
    needs = (*_python(), *_engines(settings), *_home(settings), *_files(settings))
    return [*needs, *_memory(settings), *_kept(settings)]


def _python() -> Iterator[CheckResult]:
    found = ".".join(map(str, sys.version_info[:3]))
    yield CheckResult("Python", sys.version_info[:2] >= MINIMUM_PYTHON, found, "install Python 3.11 or newer")


def _engines(settings: Settings) -> Iterator[CheckResult]:
    for adapter, section in settings.engines():
        yield from adapter.findings(section)


def _home(settings: Settings) -> Iterator[CheckResult]:
    parent = next(path for path in (settings.home, *settings.home.parents) if path.exists())
    writable = os.access(parent, os.W_OK)
    yield CheckResult("Home folder", writable, str(settings.home), f"make {parent} writable or choose another --home")


def _files(settings: Settings) -> Iterator[CheckResult]:
    warnings = exposed(settings)
    if not warnings:
        yield CheckResult("Secrets", True, "no other user of this machine can read them")
    for warning in warnings:
        yield CheckResult("Secrets", False, warning, needed=False)


def _memory(settings: Settings) -> Iterator[CheckResult]:
    wanted = sum(adapter.memory_bytes(section) for adapter, section in settings.engines())
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{mebibytes(wanted)} configured of {mebibytes(has)}"
    remedy = "lower duckdb.memory_limit, duckdb.workers or spark.driver_memory in fusion.toml"
    yield CheckResult("Memory", wanted < has, detail, remedy)


def _kept(settings: Settings) -> Iterator[CheckResult]:
    """Tell what results take on the disk, and how long the past is kept."""
    folder = settings.home / "results"
    sizes = [file.stat().st_size for file in folder.glob("*.arrow")] if folder.exists() else []
    results, history = settings.results, settings.history
    detail = (
        f"{len(sizes):,} of at most {results.count:,}, {mebibytes(sum(sizes))} of {mebibytes(int(results.total))}, "
        f"kept for {results.keep_s / 3600:,.0f} h"
    )
    yield CheckResult(
        "Results", sum(sizes) <= int(results.total), detail, "start the gateway, which deletes the oldest"
    )
    limits = f"{history.queries:,} queries, {mebibytes(int(history.bytes))}, {history.keep_s / 86_400:,.0f} days"
    yield CheckResult("History", True, f"at most {limits}")
