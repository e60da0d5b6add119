"""What comes from a HiveServer2, or instead of its answer, and what it becomes.

Spark's texts are as Spark Thrift Server 4.3 gave them (tests/engines/hive/test_hive.py provokes the common ones anew),
those of Hive and Kyuubi as their sources write them.
"""

from __future__ import annotations

import http.client

import pytest
from pyhive.exc import OperationalError  # type: ignore[import-untyped]
from TCLIService.ttypes import TCloseSessionResp, TStatus, TStatusCode  # type: ignore[import-untyped]
from thrift.protocol.TProtocol import TProtocolException  # type: ignore[import-untyped]
from thrift.Thrift import TApplicationException  # type: ignore[import-untyped]
from thrift.transport.TTransport import TTransportException  # type: ignore[import-untyped]

from engines.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineFault,
    EngineUnavailable,
    MemoryExceeded,
    StatementCancelled,
    StatementError,
    UnsupportedFeature,
)
from engines.hive.errors import hive_errors, of_text

SPARK = "org.apache.hive.service.cli.HiveSQLException: Error running query: "
STACK = "\n\tat org.apache.spark.sql.hive.thriftserver.HiveThriftServerErrors$.runningQueryError(X.scala:43)"


def translated(error: Exception) -> EngineError:
    with pytest.raises(EngineError) as caught, hive_errors():
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("sqlstate", "text", "kind", "message"),
    [
        (
            "42601",
            f"{SPARK}[PARSE_SYNTAX_ERROR] org.apache.spark.sql.catalyst.parser.ParseException: \n"
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nselec",
            StatementError,
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'",
        ),
        (
            "22012",
            f"{SPARK}[DIVIDE_BY_ZERO] org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. "
            f"SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nselect 1/0{STACK}",
            StatementError,
            "[DIVIDE_BY_ZERO] Division by zero",
        ),
        (
            "42K03",
            f"{SPARK}[PATH_NOT_FOUND] org.apache.spark.sql.AnalysisException: [PATH_NOT_FOUND] Path does not exist: "
            f"file:/srv/data/secret. SQLSTATE: 42K03{STACK}",
            StatementError,
            "[PATH_NOT_FOUND] Path does not exist: ...",
        ),
        # Without a SQLSTATE beside it, the one at its end counts, whatever the statement's own words are.
        (
            None,
            "[USER_RAISED_EXCEPTION] OutOfMemoryError, Java heap space SQLSTATE: P0001",
            StatementError,
            "[USER_RAISED_EXCEPTION] OutOfMemoryError, Java heap space",
        ),
        ("", f"{SPARK}java.lang.OutOfMemoryError: Java heap space{STACK}", MemoryExceeded, "Java heap space"),
        (
            None,
            "Job aborted due to stage failure: Total size of serialized results of 8 tasks (1027.5 MiB) is bigger than "
            "spark.driver.maxResultSize (1024.0 MiB)",
            MemoryExceeded,
            None,
        ),
        ("53200", "Unable to acquire 64 bytes of memory", MemoryExceeded, None),
        (None, "Job 3 cancelled part of cancelled job group 02572568", StatementCancelled, None),
        (
            "HY000",
            "The background threadpool cannot accept new task for execution, please retry the operation",
            EngineBusy,
            None,
        ),
        (None, "Failed to open new session: Connection limit per user reached (user: ann limit: 1)", EngineBusy, None),
        (None, "Invalid SessionHandle: SessionHandle [0e4a]", EngineUnavailable, None),
        (None, "Cannot call methods on a stopped SparkContext.", EngineUnavailable, None),
        (None, "Job 0 cancelled because SparkContext was shut down", EngineUnavailable, None),
        (
            None,
            f'{SPARK}java.lang.NullPointerException: Cannot invoke "org.apache.spark.scheduler.DAGScheduler.run()" '
            'because the return value of "org.apache.spark.SparkContext.dagScheduler()" is null',
            EngineUnavailable,
            None,
        ),
        # Hive
        (
            "42000",
            "Error while compiling statement: FAILED: ParseException line 1:0 cannot recognize input near 'selec'",
            StatementError,
            "ParseException line 1:0 cannot recognize input near 'selec'",
        ),
        (
            "42S02",
            "Error while compiling statement: FAILED: SemanticException [Error 10001]: Line 1:14 Table not found 'x'",
            StatementError,
            "SemanticException [Error 10001]: Line 1:14 Table not found 'x'",
        ),
        (
            "42000",
            "Error while compiling statement: FAILED: HiveAccessControlException Permission denied: user [ann] does "
            "not have [SELECT] privilege on [db/t]",
            StatementError,
            None,
        ),
        (
            "08S01",
            "Error while processing statement: FAILED: Execution Error, return code 2 from "
            "org.apache.hadoop.hive.ql.exec.tez.TezTask. Vertex failed, diagnostics=[Task failed, Container is running "
            "beyond physical memory limits. Current usage: 1.1 GB of 1 GB]",
            MemoryExceeded,
            None,
        ),
        (
            "08S01",
            "Error while processing statement: FAILED: Execution Error, return code 3 from "
            "org.apache.hadoop.hive.ql.exec.mr.MapredLocalTask",
            MemoryExceeded,
            None,
        ),
        (
            "08S01",
            "Error while processing statement: FAILED: Execution Error, return code 2 from "
            "org.apache.hadoop.hive.ql.exec.mr.MapRedTask",
            EngineFault,
            None,
        ),
        ("HYT00", "Query timed out after 30 seconds", DeadlineExceeded, None),
        (None, "java.lang.UnsupportedOperationException: no", UnsupportedFeature, "no"),
        (None, "Timeout(180000 ms) to launched SPARK_SQL engine with /opt/kyuubi", EngineUnavailable, None),
        (None, "", EngineFault, "HiveServer2 gave no reason"),
        ("HY000", "something new", EngineFault, "something new"),
    ],
)
def test_operations_that_failed(sqlstate: str | None, text: str, kind: type[EngineError], message: str | None) -> None:
    error = of_text(text, sqlstate)
    assert type(error) is kind
    assert "\tat " not in error.message
    assert "/opt" not in error.message
    if message is not None:
        assert error.message == message


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes"),
            EngineUnavailable,
            "read 0 bytes",
        ),
        (
            TTransportException(TTransportException.NOT_OPEN, "Bad status: 3 (b'Error validating the login')"),
            EngineUnavailable,
            "validating the login",
        ),
        (
            TTransportException(TTransportException.NOT_OPEN, "no", inner=OSError("certificate verify failed")),
            EngineUnavailable,
            "certificate verify failed",
        ),
        (TProtocolException(message="Bad version in readMessageBegin"), EngineUnavailable, "Bad version"),
        (TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid method"), EngineFault, "Invalid method"),
        (http.client.RemoteDisconnected("closed without response"), EngineUnavailable, "closed without"),
        (ConnectionRefusedError(111, "Connection refused"), EngineUnavailable, "refused"),
        (TimeoutError("timed out"), EngineUnavailable, "timed out"),
        (EOFError(), EngineUnavailable, "EOFError"),
        (AssertionError("Unable to handle protocol version 3"), EngineUnavailable, "protocol version 3"),
        (ImportError("No module named 'kerberos'", name="kerberos"), EngineUnavailable, "kerberos is missing"),
        (
            OperationalError(TCloseSessionResp(TStatus(TStatusCode.INVALID_HANDLE_STATUS))),
            EngineUnavailable,
            "does not know the session",
        ),
        (
            OperationalError(TCloseSessionResp(TStatus(TStatusCode.ERROR_STATUS, sqlState="42000", errorMessage="no"))),
            StatementError,
            "no",
        ),
        (OperationalError("no answer at all"), EngineFault, "no answer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_exceptions_of_the_way_there(error: Exception, kind: type[EngineError], message: str) -> None:
    became = translated(error)
    assert type(became) is kind
    assert message in became.message


def test_programming_errors_are_not_hidden() -> None:
    with pytest.raises(KeyError), hive_errors():
        raise KeyError("a defect of ours")
