"""Print one part of requirements.lock, with its hashes: ``python3 deploy/locked.py run`` or ``build``.

run: packages that the project needs, with all extras and without the groups for development.
build: packages of the build backend, ``build-system.requires`` of pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = "fusion-sql-gateway (pyproject.toml)"
"""Name of the project in the comments ``# via``, for its dependencies and extras; groups have other names."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """One package of the lock. It is there twice where versions of Python have different versions of it."""

    name: str
    lines: tuple[str, ...]
    needed_by: frozenset[str]
    """Names of the packages that need it."""


def packages_of(lock: str) -> Sequence[LockedPackage]:
    """Read a lock file of ``uv pip compile``: each package begins in the first column, its rest is indented."""
    blocks: list[list[str]] = []
    for line in lock.splitlines():
        if _NAME.match(line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    return [LockedPackage(_name_of(block[0]), tuple(block), _needed_by(block)) for block in blocks]


def part_of(packages: Sequence[LockedPackage], roots: Collection[str]) -> str:
    """Return the lines of all packages that the roots need, and of the roots."""
    wanted = set(roots)
    while more := {package.name for package in packages if package.needed_by & wanted} - wanted:
        wanted |= more
    return "".join(f"{line}\n" for package in packages if package.name in wanted for line in package.lines)


def _name_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    if match is None:
        raise ValueError(f"{requirement!r} does not begin with the name of a package")
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def _needed_by(block: Collection[str]) -> frozenset[str]:
    comments = [line.strip().removeprefix("#").strip() for line in block if line.strip().startswith("#")]
    return frozenset(comment.removeprefix("via").strip() for comment in comments) - {""}


def main(part: str) -> None:
    """Print one part of the lock that lies beside pyproject.toml in the current folder."""
    packages = packages_of(Path("requirements.lock").read_text(encoding="utf-8"))
    if part == "run":
        roots = {PROJECT}
    elif part == "build":
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
        roots = {_name_of(requirement) for requirement in project["build-system"]["requires"]}
    else:
        raise SystemExit(f"There is no part {part!r} of the lock; say run or build")
    sys.stdout.write(part_of(packages, roots))


if __name__ == "__main__":
    main(*sys.argv[1:2] or ("",))
