"""Spark's own parser in a JVM, with all that a session does to a text before it parses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from engines.spark.embedded.java import spark_environment


class SparkParser:
    """Parses texts as a session with these settings does."""

    def __init__(self, jvm: Any, settings: Mapping[str, str]) -> None:
        configuration = jvm.org.apache.spark.sql.internal.SQLConf.get()
        for name, value in settings.items():
            configuration.setConfString(name, value)
        self._parser = jvm.org.apache.spark.sql.execution.SparkSqlParser()

    def plan(self, sql: str) -> list[dict[str, Any]]:
        """Return all nodes of a text's plan, as Spark writes them. Raises Py4JJavaError."""
        return list(_nodes(json.loads(self._parser.parsePlan(sql).toJSON())))


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what is a node of a plan or of an expression, at any depth."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "class" in one:
                yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


@contextmanager
def spark_parser(folder: Path, settings: Mapping[str, str]) -> Iterator[SparkParser]:
    """Run a JVM with the parser."""
    configuration = SparkConf(loadDefaults=False).set("spark.driver.memory", "1g")
    with pytest.MonkeyPatch.context() as environment, (folder / "parser.log").open("wb") as log:
        for name, value in spark_environment().items():
            environment.setenv(name, value)
        environment.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
        gateway: Any = launch_gateway(configuration, {"stdout": log, "stderr": log, "cwd": folder})
    try:
        yield SparkParser(gateway.jvm, settings)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
