"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import settings

from engines.spark.embedded.java import find_java_home
from tests.engines.conformance import warehouse
from tests.quick_java import archive_classes, quick_java

if TYPE_CHECKING:
    from engines.spark.embedded.server import SparkConnectServer
    from engines.spark.engine import SparkConnectEngine

__all__ = ["warehouse"]

# The same examples in every run, so that a change is judged by what it changed; new ones are looked for on purpose,
# with `pytest --hypothesis-profile explore`.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2_000, deadline=None)
settings.load_profile("steady")

QUICK_JAVA = "fusion-tests-java-"
_JAVA = pytest.StashKey[Path]()
_ARCHIVER = pytest.StashKey[subprocess.Popen[bytes] | None]()
TESTS = Path(__file__).parent
REAL_SERVERS = tuple(TESTS / room for room in ("attacks", "engines/impala", "gateway/drivers", "gateway/statistics"))
LONGEST_FIRST = (
    "test_tutorial.py",
    "e2e",
    "engines/hive",
    "engines/spark",
    "attacks",
    "gateway/statistics",
    "gateway",
    "statsproc",
)
"""Files and folders that take longest, so that none of them begins when all others have ended."""


def pytest_configure(config: pytest.Config) -> None:
    """Have all tests start the quick Java, and compare no answers by chance.

    Processes that run a part of the tests get the Java from the one that began.
    """
    os.environ.setdefault("FUSION_PARITY__SHARE", "0")  # no statement runs twice by chance
    if hasattr(config, "workerinput"):
        return
    config.stash[_JAVA] = folder = Path(tempfile.mkdtemp(prefix=QUICK_JAVA))
    folder.chmod(0o755)  # servers of other users start it too
    home = quick_java(folder)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
        find_java_home.cache_clear()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have many tests with Spark share its classes: one alone would wait longer for the archive than it saves."""
    config, home = item.config, Path(os.environ.get("JAVA_HOME", ""))
    is_one_of_many = hasattr(config, "workerinput") and home.name.startswith(QUICK_JAVA)
    if is_one_of_many and item.get_closest_marker("spark") and _ARCHIVER not in config.stash:
        config.stash[_ARCHIVER] = archive_classes(home)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End and delete what tests share."""
    archiver = config.stash.get(_ARCHIVER, None)
    if archiver is not None:
        if archiver.poll() is None:
            os.killpg(archiver.pid, signal.SIGKILL)
        archiver.wait()
    if _JAVA in config.stash:
        shutil.rmtree(config.stash[_JAVA])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs real servers or clients beside the code it tests, and begin with what takes longest."""
    for item in items:
        if any(item.path.is_relative_to(room) for room in REAL_SERVERS) or "postgresql" in item.name:
            item.add_marker(pytest.mark.e2e)
    places = [TESTS / folder for folder in LONGEST_FIRST]
    last = len(places)
    items.sort(key=lambda item: next((n for n, place in enumerate(places) if item.path.is_relative_to(place)), last))


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have metastores of this process begin with a copy of one that was migrated."""
    from metastore.database.connection import migrate
    from tests.migrated import MigratedOnce

    with pytest.MonkeyPatch.context() as patched:
        template = tmp_path_factory.mktemp("migrated") / "metastore.db"
        patched.setattr("metastore.store.migrate", MigratedOnce(migrate, template))
        yield


@pytest.fixture(scope="session", autouse=True)
def computed_once() -> Iterator[None]:
    """Have this process compute a password's hash, and read the system's certificates, once: 0.1 s each time.

    Processes that tests start compute their own.
    """
    from gateway.security import authentication

    hashed, of = cache(authentication._hashed), cache(authentication.Secret.of)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(authentication, "_hashed", hashed)
        patched.setattr(authentication.Secret, "of", staticmethod(of))
        patched.setattr("httpx._transports.default.create_ssl_context", cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnectServer]:
    """Give the one embedded server of this run; it starts with the first statement."""
    from engines.spark.embedded.server import ServerSettings, SparkConnectServer

    settings = ServerSettings(
        work_folder=tmp_path_factory.mktemp("spark"),
        stable_after_s=0.0,  # tests kill it one after the other, and none shall wait for another's back-off
    )
    server = SparkConnectServer(settings)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark_engine(spark_server: SparkConnectServer) -> Iterator[SparkConnectEngine]:
    """Give the one real Spark of this run. A test that kills the server must leave the engine working."""
    from engines.spark.embedded.health import HealthThresholds
    from engines.spark.engine import SparkConnectEngine

    # Tests run statements beside the engine, which would take them for leftovers of those that it cancelled.
    engine = SparkConnectEngine(spark_server, thresholds=HealthThresholds(lingers_s=3_600.0))
    yield engine
    engine.close()
