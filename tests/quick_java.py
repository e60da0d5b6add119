"""A Java for servers that live for seconds: it starts in a third of the processor time, and answers the same.

Most of what a short-lived Spark costs is its optimizing compiler, whose code is hardly ever run, the threads of a
collector for large heaps, and the reading of the same twenty thousand classes. Tests want none of them: whatever starts
Java in them finds this one through JAVA_HOME, and the first test with Spark has its classes put into an archive.

    python -m tests.quick_java FOLDER
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from engines.spark.embedded.java import JavaNotFound, find_java_home

OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC", "-Xlog:disable")
"""Without the optimizing compiler Java has 48 MiB for compiled code; a Spark stops once they are full."""
_ARCHIVE, _BEGUN = "classes.jsa", "begun"


def quick_java(folder: Path) -> Path | None:
    """Make a JAVA_HOME in a folder, whose ``java`` adds OPTIONS to what it is told; None where there is no Java."""
    try:
        java = find_java_home() / "bin" / "java"
    except JavaNotFound:
        return None
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    archive = shlex.quote(str(folder / _ARCHIVE))
    launcher.write_text(
        f'#!/bin/sh\n[ -r {archive} ] && set -- -XX:SharedArchiveFile={archive} "$@"\n'
        f'exec {shlex.quote(str(java))} {shlex.join(OPTIONS)} "$@"\n',
        encoding="utf-8",
    )
    launcher.chmod(0o755)
    return folder


def archive_classes(home: Path) -> subprocess.Popen[bytes] | None:
    """Begin to put Spark's classes into an archive, from which Java reads them once it is there.

    Returns the process that does it; None where another one has begun.
    """
    try:
        (home / _BEGUN).touch(exist_ok=False)
    except FileExistsError:
        return None
    command = [sys.executable, "-m", "tests.quick_java", str(home)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def _archive(home: Path) -> None:
    """Run a little of everything that Spark does, and keep the classes that this took."""
    from pyspark.sql import SparkSession

    draft = home / f"{_ARCHIVE}.draft"
    settings = {
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={draft}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.port": "0",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    rows = spark.range(1_000).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS text")
    for format in ("parquet", "csv"):
        rows.write.format(format).save(str(home / format))
        spark.read.schema(rows.schema).format(format).load(str(home / format)).createOrReplaceTempView(format)
    spark.sql(
        "SELECT k, COUNT(*), MAX(text), ROW_NUMBER() OVER (ORDER BY k) FROM parquet JOIN csv USING (id, k, text) "
        "GROUP BY k ORDER BY k"
    ).collect()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()
    draft.rename(home / _ARCHIVE)


if __name__ == "__main__":
    _archive(Path(sys.argv[1]))
