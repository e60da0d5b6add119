"""A Java for servers that live for seconds: it starts in half the processor time, and answers the same.

Most of what a short-lived Spark costs is its optimizing compiler, whose code is hardly ever run, and the threads of a
collector for large heaps. Tests want neither; whatever starts Java in them finds this one through JAVA_HOME.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from engines.spark.embedded.java import JavaNotFound, find_java_home

OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def quick_java(folder: Path) -> Path | None:
    """Make a JAVA_HOME in a folder, whose ``java`` adds OPTIONS to what it is told; None where there is no Java."""
    try:
        java = find_java_home() / "bin" / "java"
    except JavaNotFound:
        return None
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(str(java))} {shlex.join(OPTIONS)} "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    return folder
