"""Run suites of clients: `python -m tests.clients [SUITE ...]`; all of them without a name."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyspark
from filelock import FileLock

from engines.spark.embedded.java import find_java_home
from tests.clients import known
from tests.clients.environment import CACHE, InstallationFailed, prepare
from tests.clients.known import Outcome
from tests.clients.server import ServedGateway, SetupFailed, serving
from tests.clients.suites import CHECKS, SUITES, Suite

SUITE_WITHIN_S = 3600.0
INSIDE = Path(__file__).parent / "inside"


def main(arguments: list[str]) -> int:
    """Run suites; returns 1 where a test ended otherwise than known/ says."""
    parser = argparse.ArgumentParser(prog="make test-clients", description=__doc__)
    parser.add_argument("suite", nargs="*")
    chosen = parser.parse_args(arguments).suite
    names = [suite.name for suite in SUITES]
    if strange := sorted(set(chosen) - set(names)):
        parser.error(f"There is no suite {', '.join(strange)}; there are {', '.join(names)}.")
    home = CACHE / "gateway"
    CACHE.mkdir(exist_ok=True)
    wrong = []
    with FileLock(CACHE / "gateway.lock"):
        shutil.rmtree(home, ignore_errors=True)
        with serving(home) as gateway:
            for suite in (suite for suite in SUITES if not chosen or suite.name in chosen):
                began_s = time.monotonic()
                try:
                    outcomes = run(suite, gateway)
                except (InstallationFailed, subprocess.TimeoutExpired) as error:
                    wrong.append(f"{suite.name} did not run to its end: {error}")
                    continue
                states = Counter(outcome.state for outcome in outcomes)
                print(
                    f"{suite.name}: {states['passed']} passed, {states['failed']} failed, {states['skipped']} skipped "
                    f"of {len(outcomes)}, in {time.monotonic() - began_s:.0f} s",
                    flush=True,
                )
                wrong += [f"{suite.name}: {line}" for line in known.unexpected(known.read(suite.name), outcomes)]
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def run(suite: Suite, gateway: ServedGateway) -> list[Outcome]:
    """Make a suite's tables, run its tests, and return how each ended; .clients/SUITE.log has all that was said."""
    environment = prepare(suite.name, suite.requirements, suite.source)
    outcomes = [_set_up(gateway, sql) for sql in suite.data]
    tests = CHECKS if suite.source is None else environment.packages / suite.source.package
    java = find_java_home()
    told = CACHE / f"{suite.name}.outcomes"
    told.unlink(missing_ok=True)
    work = CACHE / f"{suite.name}.work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = [
        *(
            str(environment.python),
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--rootdir",
            str(tests),
            "--confcutdir",
            str(tests),
        ),
        *("-p", "in_their_pytest", "-p", "no:cacheprovider", "--timeout", str(suite.test_within_s)),
        *suite.arguments,
        *(str(tests / file) for file in suite.files),
    ]
    variables = {
        name: value.format(port=gateway.drivers_port, http_port=gateway.http_port)
        for name, value in suite.variables.items()
    }
    variables |= {
        "CLIENTS_OUTCOMES": str(told),
        "CLIENTS_FOLDER": str(work),
        "CLIENTS_DATA": str(gateway.data),
        "CLIENTS_PORT": str(gateway.drivers_port),
        "CLIENTS_HTTP_PORT": str(gateway.http_port),
        "PYTHONPATH": str(INSIDE),
        "CLIENTS_JARS": str(Path(pyspark.__file__).parent / "jars"),
        "JAVA_HOME": str(java),
        "PATH": os.pathsep.join(
            [str(INSIDE / "bin"), str(environment.python.parent), str(java / "bin"), os.environ["PATH"]]
        ),
    }
    with (CACHE / f"{suite.name}.log").open("wb") as log:
        subprocess.run(command, env={**os.environ, **variables}, stdout=log, stderr=log, timeout=SUITE_WITHIN_S)
    if not told.exists():
        raise InstallationFailed((CACHE / f"{suite.name}.log").read_text(encoding="utf-8")[-2_000:])
    return [*outcomes, *known.read_outcomes(told)]


@functools.cache
def _set_up(gateway: ServedGateway, sql: str) -> Outcome:
    """Run a statement of a suite's data once; one that is refused is a failure like any other."""
    test = f"set-up::{' '.join(sql.split())[:60]}"
    try:
        gateway.run(sql, "hive")
    except SetupFailed as error:
        return Outcome(test, "failed", str(error))
    return Outcome(test, "passed", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
