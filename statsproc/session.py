"""The SparkSession that jobs run in: an embedded one, a cluster's, or one over Spark Connect.

The embedded one is quiet and keeps to itself: bound to 127.0.0.1, no UI, UTC, every folder that Spark would
make in the current directory made under ``work_dir`` instead, and all that its JVM has to say in
``work_dir/spark.log``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.spark.java import spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
REMOTE_PARALLELISM = 16

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
    name: str = "fusion statsproc",
) -> Iterator[SparkSession]:
    """Open a session and stop it at the end.

    master: where an own Spark runs. remote: a Spark Connect address such as ``sc://host:15002``, which wins.
    driver_memory: heap of the JVM, in its own notation; with a local master that is all of Spark.
    """
    with without_pandas_warning():
        spark = _connect(remote) if remote else _start(work_dir, master, driver_memory, name)
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
    return (text.strip().splitlines() or ["Spark gave no reason"])[0]


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; over Spark Connect, which does not tell, a guess."""
    from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except (PySparkAttributeError, PySparkNotImplementedError):
        return REMOTE_PARALLELISM


def log_file(work_dir: Path) -> Path:
    """Return where the JVM of a session in this folder writes."""
    return work_dir / "spark.log"


def _start(work_dir: Path, master: str, driver_memory: str, name: str) -> SparkSession:
    work_dir = work_dir.absolute()
    work_dir.mkdir(parents=True, exist_ok=True)
    log4j = work_dir / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    environment = spark_environment()
    os.environ.pop("SPARK_HOME", None)
    for variable in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        os.environ[variable] = environment[variable]  # the JVM takes them from here

    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setMaster(master).setAppName(name)
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    for setting, value in {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={log4j.as_uri()}" "-Dderby.system.home={work_dir / "derby"}"'
        ),
        "spark.local.dir": str(work_dir / "local"),
        "spark.sql.warehouse.dir": (work_dir / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        # dates before 1582 as they stand in the file, as engines read them
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        conf.set(setting, value)
    try:
        with log_file(work_dir).open("ab") as log:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})
        context = SparkContext(conf=conf, gateway=gateway)
    except PySparkException as failure:
        raise SparkUnavailable(f"Spark did not start; see {log_file(work_dir)}") from failure
    return SparkSession(context)


def _connect(remote: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    except PySparkException as failure:
        raise SparkUnavailable(f"no Spark Connect server answers at {remote}") from failure
    return spark


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Leave out pyspark's warning about the version of pandas, which no job here uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        yield
