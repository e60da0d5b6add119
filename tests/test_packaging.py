"""What a wheel holds: the packages, and what is compiled and bundled while it is built."""

from __future__ import annotations

import shutil
import tomllib
import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

import hatch_build

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
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
