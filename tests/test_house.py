"""The plan of the house: how many folders there are, on how many levels, how much stands in each."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("gateway", "selector", "sql", "statsproc", "metastore", "engines")
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
FOLDERS = sorted({file.parent for file in FILES})
TESTED = sorted({file.parent for room in ROOMS for file in (ROOT / "tests" / room).rglob("test_*.py")})

MOST_PACKAGES, MOST_LEVELS, MOST_MODULES, LONG = 14, 9, 12, 450
LOG = ROOT / "metastore" / "migrations" / "versions"  # a step for each change of the schema, which none takes back
OF_ALL = ("settings", "failures", "errors", "recent")  # modules beside the folders, which everybody may read


def test_the_gateway_has_few_folders_on_few_levels() -> None:
    packages = {file.parent.name for file in (ROOT / "gateway").glob("*/__init__.py")}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["gateway"]]
    levels = [layer.split(" | ") for layer in layers if layer not in OF_ALL]
    assert packages == {package for level in levels for package in level}
    assert len(packages) <= MOST_PACKAGES
    assert len(levels) <= MOST_LEVELS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_is_small_and_says_where_to_start(folder: Path) -> None:
    modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES or folder == LOG
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    if folder != ROOT / "gateway":
        start = told.rpartition("START HERE: ")[2].split(".py")[0] + ".py"
        assert (folder / start).exists(), told


@pytest.mark.parametrize("folder", TESTED, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_tests_stand_where_their_subject_stands(folder: Path) -> None:
    assert ROOT / folder.relative_to(ROOT / "tests") in FOLDERS


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_long_file_says_why(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count("\n") > LONG:
        told = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
        assert "is long " in told
