"""Environments of clients: one virtual environment per suite, made once, under a folder that git ignores."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".clients"
REPOSITORIES = os.environ.get("CLIENTS_REPOSITORIES", "https://github.com/{owner}/{name}")
"""Where public repositories are cloned from."""


class InstallationFailed(Exception):
    """A client could not be installed or fetched; the message ends with what the tool said."""


class Source(Protocol):
    """Where a suite's tests come from."""

    @property
    def package(self) -> str:
        """Return the folder that the tests are put into, in the environment's site-packages."""
        ...

    def unpack(self, python: Path, folder: Path) -> Path:
        """Fetch the source into an empty folder; return the folder of the tests in it."""
        ...


@dataclass(frozen=True, slots=True)
class Sdist:
    """A source distribution, which has the tests that the wheel leaves out."""

    requirement: str
    package: str

    def unpack(self, python: Path, folder: Path) -> Path:
        """Download it with pip, and unpack it."""
        pip = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        _run([*pip, "--dest", str(folder), self.requirement])
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
        return unpacked / self.package


@dataclass(frozen=True, slots=True)
class Repository:
    """A public repository at one commit, where no distribution has the tests."""

    owner: str
    name: str
    commit: str
    package: str

    def unpack(self, python: Path, folder: Path) -> Path:
        """Clone it, and check the commit out."""
        checkout = folder / "checkout"
        _run(["git", "clone", "--quiet", REPOSITORIES.format(owner=self.owner, name=self.name), str(checkout)])
        _run(["git", "-C", str(checkout), "checkout", "--quiet", self.commit])
        return checkout / self.package


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with a client. folder: of the environment."""

    folder: Path

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Return where its packages are."""
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found


def prepare(name: str, requirements: tuple[str, ...], source: Source | None) -> Environment:
    """Make an environment, or take the one that was made of the same requirements and the same source.

    Raises InstallationFailed.
    """
    wanted = repr((sys.version_info[:2], requirements, source))
    folder = CACHE / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    made = Environment(folder)
    with FileLock(CACHE / f"{name}.lock"):
        if (folder / "complete").exists():
            return made
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(made.python), "-m", "pip", "install", "--quiet", "pytest", "pytest-timeout", *requirements])
        if source is not None:
            draft = folder / "source"
            draft.mkdir()
            tests = source.unpack(made.python, draft)
            shutil.copytree(tests, made.packages / source.package, dirs_exist_ok=True)
        (folder / "complete").write_text(wanted, encoding="utf-8")
    return made


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InstallationFailed(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-2_000:]}")
