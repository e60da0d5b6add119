"""Content of wheel and sdist, installing them in fresh environments, and the checks before a release."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from hatchling.builders.wheel import WheelBuilder

import hatch_build
from gateway.cli.client import running_address
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
UV = (sys.executable, "-m", "uv")
PYTHONS = [
    classifier.rpartition(" ")[2]
    for classifier in PROJECT["project"]["classifiers"]
    if re.search(r":: Python :: 3\.\d+$", classifier)
]
FREE_PORTS = {"FUSION_SERVER__PORT": "0", "FUSION_HS2__PORT": "0", "FUSION_FLIGHT__PORT": "0"}
STATIC = ("style.css", "refresh.js", "editor.js", "mark.svg")
BESIDE = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore")


def test_a_wheel_brings_what_its_build_compiles_and_bundles(tmp_path: Path) -> None:
    clean = tmp_path / "clone"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, clean / package, ignore=shutil.ignore_patterns("__pycache__", "*_pb2.py*", "node_modules")
        )
    for file in BESIDE:
        shutil.copy(ROOT / file, clean)
    # npm's registry may be out of reach; with this first line the bundle is not made again.
    (clean / hatch_build.BUNDLE).write_text(hatch_build.stamp(clean), encoding="utf-8")
    (clean / hatch_build.LICENCES).write_text("licences", encoding="utf-8")

    (wheel,) = WheelBuilder(str(clean)).build(directory=str(tmp_path), versions=["standard"])

    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    for proto in clean.glob("gateway/**/*.proto"):
        stem = proto.relative_to(clean).with_suffix("")
        assert {f"{stem}.proto", f"{stem}_pb2.py", f"{stem}_pb2.pyi"} <= held
    assert {hatch_build.BUNDLE, hatch_build.LICENCES} <= held
    assert {file.split("/")[0] for file in held if ".dist-info" not in file} == set(PACKAGES)


def test_messages_are_compiled_by_the_same_release_everywhere() -> None:
    (builds,) = [need for need in PROJECT["build-system"]["requires"] if need.startswith("grpcio-tools")]
    assert builds in PROJECT["dependency-groups"]["dev"]
    assert "==" in builds


def _release() -> Any:
    """Import .ci/release.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


release = _release()
THIS_PROJECT = release.project_of(ROOT)


def test_the_version_stands_in_one_place() -> None:
    literals = [
        file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if f'"{THIS_PROJECT.version}"' in file.read_text(encoding="utf-8")
    ]
    assert literals == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a clean repository in which version 1.2.0 can be released."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 - 2026-12-01\n\n- New.\n", encoding="utf-8")
    _commit(tmp_path, "init", "--quiet")
    return tmp_path


def _commit(tree: Path, *first: str) -> None:
    author = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    for arguments in (first, ("add", "."), (*author, "commit", "--quiet", "--allow-empty", "-m", "A commit")):
        subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True)


def test_a_clean_tree_with_a_new_version_is_ready(tree: Path) -> None:
    assert list(release.problems_of_tree(tree, "1.2.0")) == []


def test_an_empty_section_of_unreleased_changes_is_no_obstacle(tree: Path) -> None:
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    (tree / "CHANGELOG.md").write_text(text.replace("## 1.2.0", "## Unreleased\n\n## 1.2.0"), encoding="utf-8")
    _commit(tree, "status")
    assert list(release.problems_of_tree(tree, "1.2.0")) == []


def test_a_change_that_is_not_committed_is_named(tree: Path) -> None:
    (tree / "stray.txt").touch()
    (problem,) = release.problems_of_tree(tree, "1.2.0")
    assert "stray.txt" in problem


def test_a_version_that_was_released_is_refused(tree: Path) -> None:
    subprocess.run(["git", "-C", str(tree), "tag", "v1.2.0"], check=True)
    (problem,) = release.problems_of_tree(tree, "1.2.0")
    assert problem.startswith("The tag v1.2.0 is there already")


def test_a_version_without_a_section_is_refused(tree: Path) -> None:
    (problem,) = release.problems_of_tree(tree, "1.3.0")
    assert problem == "pyproject.toml has the version 1.3.0, CHANGELOG.md begins with 1.2.0: make them agree."


def test_changes_without_a_version_are_named(tree: Path) -> None:
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    (tree / "CHANGELOG.md").write_text(
        text.replace("## 1.2.0", "## Unreleased\n\n- More.\n\n## 1.2.0"), encoding="utf-8"
    )
    _commit(tree, "status")
    (problem,) = release.problems_of_tree(tree, "1.2.0")
    assert "under Unreleased" in problem


def test_a_wheel_with_too_much_or_too_little_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "small.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("gateway/__init__.py", "tests/__init__.py", "gateway/__pycache__/a.pyc"):
            archive.writestr(name, "")
    problems = "\n".join(release.problems_of_wheel(wheel, THIS_PROJECT))
    assert "'tests'" in problems
    assert "lacks gateway/dashboard/static/editor.js" in problems
    assert "has gateway/__pycache__/a.pyc" in problems
    assert "has Version: None" in problems


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build an sdist, and the wheel from it. Needs PyPI's and npm's registries."""
    sources, wheel = release.build(ROOT, tmp_path_factory.mktemp("dist"))
    return sources, wheel


@pytest.mark.thorough
def test_sdist_and_wheel_are_whole(built: tuple[Path, Path]) -> None:
    sources, wheel = built
    assert [*release.problems_of_sources(sources, THIS_PROJECT), *release.problems_of_wheel(wheel, THIS_PROJECT)] == []


@pytest.mark.thorough
def test_an_sdist_builds_the_same_wheel_without_git(built: tuple[Path, Path], tmp_path: Path) -> None:
    sources, wheel = built
    with tarfile.open(sources) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (folder,) = (tmp_path / "sources").iterdir()
    without_git = {**os.environ, "PATH": str(tmp_path)}
    command = [*UV, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(folder)]

    subprocess.run(command, check=True, env=without_git)

    (again,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {name: first.read(name) for name in first.namelist()} == {
            name: second.read(name) for name in second.namelist()
        }


@pytest.mark.thorough
def test_uvx_runs_the_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    command = [*UV, "tool", "run", "--from", str(built[1]), "fusion", "--version"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=_alone()).stdout
    assert printed == f"fusion {THIS_PROJECT.version}\n"


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", PYTHONS)
def test_a_wheel_with_all_extras_runs_alone(version: str, built: tuple[Path, Path], tmp_path: Path) -> None:
    python = _python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    environment, home = tmp_path / "environment", tmp_path / "home"
    subprocess.run([*UV, "venv", "--quiet", "--python", str(python), str(environment)], check=True)
    install = [*UV, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), f"{built[1]}[all]"]
    subprocess.run(install, check=True, env=_alone())

    def fusion(*arguments: str) -> str:
        command = [str(environment / "bin" / "fusion"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=_alone()).stdout

    assert fusion("--version") == f"fusion {THIS_PROJECT.version}\n"
    findings = json.loads(fusion("doctor", "--json"))["findings"]
    assert [finding for finding in findings if not finding["good"]] == []
    assert next(finding["detail"] for finding in findings if finding["subject"] == "Python").startswith(version)
    assert re.search(r"Q9 +│ ", fusion("demo", "--scale", "0.0005", "--no-serve"))
    with subprocess.Popen([str(environment / "bin" / "fusion"), "serve", "--home", str(home)], env=_alone()) as server:
        try:
            wait_until(lambda: running_address(home) is not None, "fusion serve")
            for name in STATIC:
                httpx.get(f"{running_address(home)}/dashboard/static/{name}").raise_for_status()
        finally:
            server.terminate()
        assert server.wait(60) == -signal.SIGTERM


def _python_of(version: str) -> Path | None:
    """Return an interpreter: one that uv finds, or pyenv has."""
    command = [*UV, "python", "find", "--no-project", "--no-python-downloads", version]
    uv = subprocess.run(command, capture_output=True, text=True)
    if uv.returncode == 0:
        return Path(uv.stdout.strip())
    return next((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"), None)


def _alone() -> dict[str, str]:
    """Return this environment without what leads to modules of this folder, and with free ports."""
    paths = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in paths}, **FREE_PORTS}
