"""Spark's errors and what they become; tests/engines/spark/test_spark.py meets the common ones for real."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest
from pyspark.errors import PySparkAssertionError, PySparkTypeError
from pyspark.errors.exceptions.connect import (
    AnalysisException,
    SparkConnectGrpcException,
    SparkException,
    UnknownException,
    UnsupportedOperationException,
)

from engines.errors import (
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from engines.spark.errors import spark_errors
from engines.spark_sql.error_messages import short_message


def translated(error: Exception) -> EngineError:
    with pytest.raises(EngineError) as caught, spark_errors():
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("42703", StatementError),
        ("22012", StatementError),
        ("21000", StatementError),
        ("KD001", StatementError),
        ("P0001", StatementError),
        ("0A000", UnsupportedFeature),
        ("56038", UnsupportedFeature),
        ("53200", MemoryExceeded),
        ("82003", MemoryExceeded),
        ("53000", EngineBusy),
        ("HY008", StatementCancelled),
        ("XXKDA", StatementCancelled),
        ("08003", EngineUnavailable),
        ("HY000", EngineUnavailable),
        ("XX000", EngineFault),
        ("ZZZZZ", EngineFault),
    ],
)
def test_sqlstate_decides(sqlstate: str, kind: type[EngineError]) -> None:
    assert type(translated(SparkException("something", sql_state=sqlstate))) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, EngineUnavailable),
        (grpc.StatusCode.UNAUTHENTICATED, EngineUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, EngineUnavailable),
        (grpc.StatusCode.INTERNAL, EngineFault),
    ],
)
def test_then_the_status_of_the_call(status: grpc.StatusCode, kind: type[EngineError]) -> None:
    assert type(translated(SparkConnectGrpcException("no answer", grpc_status_code=status))) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AnalysisException("an old error without a state"), StatementError),
        (UnsupportedOperationException("no"), UnsupportedFeature),
        (UnknownException("Job aborted: java.lang.OutOfMemoryError: Java heap space"), MemoryExceeded),
        (SparkException("results (1030 MiB) is bigger than spark.driver.maxResultSize (1 GiB)"), MemoryExceeded),
        (PySparkAssertionError("Received incorrect server side session identifier"), EngineUnavailable),
        (
            PySparkTypeError(
                errorClass="UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION", messageParameters={"data_type": "x"}
            ),
            UnsupportedFeature,
        ),
        (
            SparkException("File gone.", errorClass="FAILED_READ_FILE.FILE_NOT_EXIST", sql_state="KD001"),
            EngineBusy,
        ),
        (ValueError("Cannot invoke RPC on closed channel!"), EngineUnavailable),
        (ValueError("Cannot invoke RPC: Channel closed!"), EngineUnavailable),
        (ValueError("A null type field may not be non-nullable"), EngineFault),
        (pa.ArrowInvalid("Invalid: channel closed, says a value"), EngineFault),
        (SparkException("whatever"), EngineFault),
    ],
)
def test_then_what_is_left(error: Exception, kind: type[EngineError]) -> None:
    assert type(translated(error)) is kind


def test_other_exceptions_are_bugs_and_pass() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("ours")


@pytest.mark.parametrize(
    ("said", "short"),
    [
        (
            "(org.apache.spark.SparkSQLException) [OPERATION_CANCELED] Operation has been canceled."
            " SQLSTATE: HY008\n\nJVM stacktrace:\norg.apache.spark.SparkSQLException\n\tat org.apache.X(X.scala:1)",
            "[OPERATION_CANCELED] Operation has been canceled",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 7)\n\n== SQL ==\nx",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x' (line 1, pos 7)",
        ),
        (
            "[A] Cannot resolve `t`. SQLSTATE: 42P01; line 1 pos 31;\n'Aggregate [count(1)]",
            "[A] Cannot resolve `t` (line 1 pos 31)",
        ),
        ("[B] Path does not exist: file:/srv/data/t. SQLSTATE: 42K03", "[B] Path does not exist: ..."),
        ("[C] Cannot read /srv/secret/part-1.parquet: bad magic", "[C] Cannot read ...: bad magic"),
        ("[D] cannot divide a/b by 1/2", "[D] cannot divide a/b by 1/2"),
        ("x" * 1000, "x" * 497 + "..."),
    ],
)
def test_messages_are_short(said: str, short: str) -> None:
    assert short_message(said) == short
