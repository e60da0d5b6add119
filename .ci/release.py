"""Prepare a release: check the tree and the change log, build into dist/, check what was built. Nothing is uploaded.

Called by ``make release``; ``make rehearsal`` reports the same problems and goes on.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
UNRELEASED = "Unreleased"
IN_EACH_PACKAGE = ("__init__.py", "py.typed")
IN_WHEEL = (
    "gateway/dashboard/static/style.css",
    "gateway/dashboard/static/editor.js",
    "gateway/dashboard/static/editor.LICENSES.txt",
    "gateway/drivers/flight/protocol/flight_sql_pb2.py",
    "metastore/migrations/env.py",
)
IN_SOURCES = (
    *("LICENSE", "README.md", "CHANGELOG.md", "Makefile"),
    *("pyproject.toml", "hatch_build.py", "requirements.lock"),
)
MADE_BY_TOOLS = re.compile(r"__pycache__|\.pyc$|(^|/)\.(venv|fusion|git|\w+_cache)/|node_modules")
STEPS = """
What is left to do by hand:
  1. Install {wheel} in an empty environment, and run: fusion doctor; fusion demo
  2. git tag -a v{version} -m 'Version {version}'; git push origin v{version}
  3. Upload both files of dist/ to the package index: uv publish dist/*
  4. Build and push the image under the tag {version}: deploy/README.md
  5. Publish the section {version} of CHANGELOG.md as the release notes
"""


@dataclass(frozen=True, slots=True)
class Project:
    """Parts of pyproject.toml that a release is checked against."""

    name: str
    version: str
    packages: tuple[str, ...]


def project_of(root: Path) -> Project:
    """Read pyproject.toml, the one place of the version."""
    content = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    packages = content["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return Project(content["project"]["name"], content["project"]["version"], tuple(packages))


def problems_of_tree(root: Path, version: str) -> Iterator[str]:
    """Yield a sentence for each reason why this version cannot be released from this tree."""
    changes = _git(root, "status", "--porcelain")
    if changes:
        yield f"The tree is not clean, so nobody could build the same again: commit or remove\n{changes}"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"The tag v{version} is there already: set a new version in pyproject.toml."
    sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    titles = [section.partition("\n")[0].strip() for section in sections]
    if sections and titles[0] == UNRELEASED:
        if sections[0].partition("\n")[2].strip():
            yield (
                f"CHANGELOG.md has changes under {UNRELEASED}: set a new version in pyproject.toml, "
                "and move them under '## VERSION - DATE'."
            )
        titles = titles[1:]
    newest = titles[0].split()[0] if titles else "none"
    if newest != version:
        yield f"pyproject.toml has the version {version}, CHANGELOG.md begins with {newest}: make them agree."


def problems_of_wheel(wheel: Path, project: Project) -> Iterator[str]:
    """Yield a sentence for each thing that a wheel lacks, or should not have."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
        headers = Parser().parsestr(archive.read(metadata).decode()) if metadata else Message()
    packages = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    if packages != set(project.packages):
        yield f"{wheel.name} has the packages {sorted(packages)}, expected {sorted(project.packages)}."
    typed = [f"{package}/{file}" for package in project.packages for file in IN_EACH_PACKAGE]
    yield from _missing(wheel, names, (*IN_WHEEL, *typed))
    yield from _unwanted(wheel, names)
    yield from _problems_of_metadata(wheel, headers, project)


def problems_of_sources(sources: Path, project: Project) -> Iterator[str]:
    """Yield a sentence for each thing that an sdist lacks, or should not have."""
    folder = f"{project.name.replace('-', '_')}-{project.version}/"
    with tarfile.open(sources) as archive:
        paths = archive.getnames()
        file = archive.extractfile(f"{folder}PKG-INFO") if f"{folder}PKG-INFO" in paths else None
        headers = Parser().parsestr(file.read().decode()) if file else Message()
    names = {path.removeprefix(folder) for path in paths}
    yield from _missing(sources, names, (*IN_SOURCES, *(f"{package}/__init__.py" for package in project.packages)))
    yield from _unwanted(sources, names)
    yield from _problems_of_metadata(sources, headers, project)


def _missing(archive: Path, names: Collection[str], wanted: Collection[str]) -> Iterator[str]:
    yield from (f"{archive.name} lacks {name}." for name in sorted(set(wanted) - set(names)))


def _unwanted(archive: Path, names: Collection[str]) -> Iterator[str]:
    yield from (f"{archive.name} has {name}, which tools made." for name in sorted(names) if MADE_BY_TOOLS.search(name))


def _problems_of_metadata(archive: Path, headers: Message, project: Project) -> Iterator[str]:
    """Check what a package index would refuse, or show wrongly."""
    expected = {"Name": project.name, "Version": project.version, "Description-Content-Type": "text/markdown"}
    for field, value in expected.items():
        if headers[field] != value:
            yield f"{archive.name} has {field}: {headers[field]}, expected {value}."
    yield from (f"{archive.name} has no {field}." for field in ("Summary", "License-Expression") if not headers[field])
    if not str(headers.get_payload()).strip():
        yield f"{archive.name} has no description: README.md is missing."


def build(root: Path, into: Path) -> tuple[Path, Path]:
    """Build an sdist, and the wheel from it, into an empty folder; return both. Raises CalledProcessError."""
    for earlier in (*into.glob("*.whl"), *into.glob("*.tar.gz")):
        earlier.unlink()
    uv = (sys.executable, "-m", "uv", "build", "--quiet", "--no-create-gitignore")
    subprocess.run([*uv, "--out-dir", str(into), str(root)], check=True)
    (sources,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return sources, wheel


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments],  # noqa: S607 - git of the PATH, as the person uses it
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def main() -> int:
    """Prepare a release, and return the exit status."""
    parser = argparse.ArgumentParser(description="Prepare a release. Nothing is uploaded.")
    parser.add_argument("--rehearse", action="store_true", help="go on where the tree or the change log is not ready")
    is_rehearsal: bool = parser.parse_args().rehearse
    project = project_of(ROOT)
    problems = list(problems_of_tree(ROOT, project.version))
    for problem in problems:
        print(f"not ready: {problem}")
    if problems and not is_rehearsal:
        return 1
    sources, wheel = build(ROOT, ROOT / "dist")
    built = [*problems_of_sources(sources, project), *problems_of_wheel(wheel, project)]
    for problem in built:
        print(f"wrong: {problem}")
    if built:
        return 1
    print(f"built and checked: {sources.relative_to(ROOT)}, {wheel.relative_to(ROOT)}")
    print(STEPS.format(wheel=wheel.relative_to(ROOT), version=project.version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
