"""An engine is one folder: without it and its entry point, everything else is as it was."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
ROOMS = ("gateway", "selector", "sql", "engines", "metastore", "statsproc", "benchmarks", "tests", "deploy", "docs")
COPIED = ("*.md", "*.toml", "*.lock", "*.py", "*.yml", "Makefile", "LICENSE", ".gitignore")
NEAR = (  # what looks at all engines, or at all files
    "tests/test_house.py",
    "tests/test_types.py",
    "tests/test_docs.py",
    "tests/attacks/test_patterns.py",
    "tests/engines/test_toy.py",
    "tests/gateway/server/test_engine_settings.py",
    "tests/gateway/server/test_deploy_files.py",
    "tests/sql/test_spark_alone.py",
)


OTHERS = ("hive", "impala")
"""Engines beside the default pair."""


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """Give a copy of the project without the engines that are not the default pair."""
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for file in (file for pattern in COPIED for file in ROOT.glob(pattern)):
        shutil.copy(file, tmp_path)
    for engine in OTHERS:
        shutil.rmtree(tmp_path / "engines" / engine)
        shutil.rmtree(tmp_path / "tests" / "engines" / engine)
    project = tmp_path / "pyproject.toml"
    lines = project.read_text(encoding="utf-8").splitlines(keepends=True)
    entry_points = [line for line in lines if line.startswith(tuple(f'{engine} = "engines.' for engine in OTHERS))]
    assert len(entry_points) == len(OTHERS)
    project.write_text("".join(line for line in lines if line not in entry_points), encoding="utf-8")
    points = re.findall(r'^(\w+) = "(engines\..*)"$', project.read_text(encoding="utf-8"), flags=re.MULTILINE)
    installed = tmp_path / "fusion_sql_gateway-0.0.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fusion-sql-gateway\nVersion: 0.0.0\n")
    (installed / "entry_points.txt").write_text(
        "[fusion.engines]\n" + "".join(f"{name} = {place}\n" for name, place in points), encoding="utf-8"
    )
    return tmp_path


def run(folder: Path, *command: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]


def test_nothing_else_knows_these_engines(without: Path) -> None:
    run(without, str(Path(sys.executable).with_name("lint-imports")), "--no-logo")
    run(without, sys.executable, "-m", "pytest", "-q", "-m", "not spark and not e2e and not thorough", *NEAR)


@pytest.mark.thorough
@pytest.mark.timeout(3_600)
def test_all_checks_and_tests_pass_without_these_engines(without: Path) -> None:
    run(without, sys.executable, "-m", "mypy")
    fast = "not spark and not e2e and not browser and not thorough"
    run(without, sys.executable, "-m", "pytest", "-q", "-m", fast, "-n", "2", "--dist", "loadfile")
