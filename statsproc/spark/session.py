"""The SparkSession that jobs run in: an embedded one, a cluster's, one over Spark Connect, or spark-submit's.

The embedded one is quiet and keeps to itself: bound to 127.0.0.1, no UI, UTC, every folder that Spark would
make in the current directory made under ``work_dir`` instead, and all that its JVM has to say in
``work_dir/spark.log``.
"""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engines.parser_settings import SPARK_AS_WRITTEN
from engines.spark.embedded.java import spark_environment

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

APP_NAME = "fusion statsproc"
LOCAL = "local[*]"
REMOTE_PARALLELISM = 16
WORKER_DAEMON = "statsproc.spark.worker_daemon"
CONNECT_PORT = 15002  # Spark Connect's own
CONNECT_TIMEOUT_S = 10.0

_SETTINGS = {
    **SPARK_AS_WRITTEN,  # columns have names of anybody's making
    "spark.sql.session.timeZone": "UTC",
    # dates before 1582 as they stand in the file, as engines read them
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}

_OURS = ("STATSPROC_", "FUSION_", "SPARK_REMOTE")  # variables that may hold passwords and tokens

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkUnavailable(RuntimeError):
    """Spark could not be started or reached."""


class SparkFailed(RuntimeError):
    """Spark could not do a piece of work; the message is one line."""


@contextmanager
def open_session(
    work_dir: Path,
    *,
    master: str = LOCAL,
    remote: str | None = None,
    driver_memory: str = "2g",
) -> Iterator[SparkSession]:
    """Open a session and stop it at the end.

    master: where an own Spark runs. remote: a Spark Connect address such as ``sc://host:15002``, which wins.
    driver_memory: heap of the JVM, in its own notation; with a local master that is all of Spark.
    Under spark-submit, and where SPARK_REMOTE is set, Spark is there already: master and driver_memory do not count.
    """
    remote = remote or os.environ.get("SPARK_REMOTE") or _submitted_remote()
    with without_pandas_warning():
        if remote:
            spark = _connect(remote)
        elif "PYSPARK_GATEWAY_PORT" in os.environ:
            spark = _submitted_session()
        else:
            spark = _start(work_dir, master, driver_memory)
    try:
        yield spark
    finally:
        with suppress(SparkFailed), spark_errors():  # it may be gone already
            spark.stop()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn whatever Spark raises into SparkFailed."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as failure:
        raise SparkFailed(_first_line(_root_cause(failure.java_exception))) from failure
    except (PySparkException, Py4JError, ConnectionError) as failure:
        raise SparkFailed(_first_line(str(failure))) from failure


def _root_cause(thrown: Any) -> str:
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return str(thrown.getMessage() or thrown.toString())


def _first_line(text: str) -> str:
    """Return what went wrong: the first line, but the last one of a worker's Python traceback."""
    lines = text.strip().splitlines() or ["Spark gave no reason"]
    return lines[-1] if any(line.startswith("Traceback ") for line in lines) else lines[0]


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return a session's context; None over Spark Connect, which has none. Raises SparkFailed where Spark is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

    try:
        return spark.sparkContext
    except (PySparkAttributeError, PySparkNotImplementedError):
        return None
    except (Py4JError, ConnectionError) as failure:
        raise SparkFailed("Spark is gone") from failure


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; over Spark Connect, which does not tell, a guess."""
    context = context_of(spark)
    with spark_errors():
        return REMOTE_PARALLELISM if context is None else int(context.defaultParallelism)


def is_local(spark: SparkSession) -> bool:
    """Return whether the tasks run on this machine, with what is installed here."""
    context = context_of(spark)
    return context is not None and str(context.master).startswith("local")


def log_file(work_dir: Path) -> Path:
    """Return where the JVM of a session in this folder writes."""
    return work_dir / "spark.log"


def _start(work_dir: Path, master: str, driver_memory: str) -> SparkSession:
    work_dir = work_dir.absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    log4j = work_dir / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    local = master.startswith("local")
    environment = spark_environment()
    os.environ.pop("SPARK_HOME", None)
    # The JVM takes them from here. A cluster has a Python of its own, and must find the way back to this machine.
    for variable in ("JAVA_HOME", "PYSPARK_DRIVER_PYTHON", *(("PYSPARK_PYTHON", "SPARK_LOCAL_IP") if local else ())):
        os.environ[variable] = environment[variable]

    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setMaster(master).setAppName(APP_NAME)
    if local:
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        conf.set("spark.python.daemon.module", WORKER_DAEMON)  # a cluster's workers do not have it
    for setting, value in {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={log4j.as_uri()}" "-Dderby.system.home={work_dir / "derby"}"'
        ),
        "spark.local.dir": str(work_dir / "local"),
        "spark.sql.warehouse.dir": (work_dir / "warehouse").as_uri(),
        **_SETTINGS,
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        conf.set(setting, value)
    with log_file(work_dir).open("ab") as log:
        before = log.tell()
        try:
            with spark_errors(), _secrets_hidden():
                gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})
                return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except SparkFailed as failure:
            reason = _reason(log_file(work_dir), before) or str(failure)
            raise SparkUnavailable(f"Spark did not start on {master}: {reason}") from failure


@contextmanager
def _secrets_hidden() -> Iterator[None]:
    """Remove secrets of this process from the environment while the JVM starts, which gets a copy."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
    for name in ours:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(ours)


def _reason(log: Path, start: int) -> str | None:
    """Return what a log says from a byte on: its first error, else the last line that is no part of a stack trace."""
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    errors = [line.partition(" ERROR ")[2].strip() for line in lines if " ERROR " in line]
    telling = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("at ", "..."))]
    return next(iter(errors or telling[-1:]), None)


def _submitted_session() -> SparkSession:
    """Take the session of the spark-submit that runs this process."""
    from pyspark.sql import SparkSession

    try:
        with spark_errors():
            spark = SparkSession.builder.getOrCreate()
            _apply_settings(spark)
    except SparkFailed as failure:
        raise SparkUnavailable(f"spark-submit gave no session: {failure}") from failure
    return spark


def _apply_settings(spark: SparkSession) -> None:
    for setting, value in _SETTINGS.items():
        spark.conf.set(setting, value)


def _submitted_remote() -> str | None:
    """Return the address that spark-submit was given with --remote."""
    properties: dict[str, str] = {}
    for part in range(int(os.environ.get("PYSPARK_REMOTE_INIT_CONF_LEN", "0"))):
        properties |= json.loads(os.environ[f"PYSPARK_REMOTE_INIT_CONF_{part}"])
    return properties.get("spark.remote")


def _connect(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    address = urlsplit(remote)
    shown = f"{address.scheme}://{address.netloc}"  # without the token that may follow
    try:
        # The client would try for minutes
        socket.create_connection((address.hostname or "", address.port or CONNECT_PORT), CONNECT_TIMEOUT_S).close()
        with spark_errors():
            spark = SparkSession.builder.remote(remote).getOrCreate()
            _apply_settings(spark)
    except (OSError, ValueError) as failure:
        raise SparkUnavailable(f"no Spark Connect server answers at {shown}: {failure}") from failure
    except SparkFailed as failure:
        raise SparkUnavailable(f"Spark Connect at {shown}: {str(failure).replace(remote, shown)}") from failure
    return spark


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Leave out pyspark's warning about the version of pandas, which no job here uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        yield
