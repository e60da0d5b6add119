"""Errors of HiveServer2 and of the connection to it -> the tree in ``engines/errors.py``, in one place.

Spark behind HiveServer2 sends its SQLSTATE beside its message or at its end, and that decides. Hive itself has few, and
two of them are vague: HY000 and 08S01 stand for any failure of a task. There, and without a SQLSTATE, the message
decides. The rest is an ``EngineFault``.
"""

from __future__ import annotations

import http.client
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyhive.exc import Error as PyHiveError  # type: ignore[import-untyped]
from TCLIService.ttypes import TStatus, TStatusCode  # type: ignore[import-untyped]
from thrift.Thrift import TApplicationException, TException  # type: ignore[import-untyped]

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
from engines.server_access import kerberos_errors
from engines.spark_sql.error_messages import by_sqlstate, by_text, short_message

VAGUE = frozenset({"", "HY000", "08S01"})
"""SQLSTATEs that stand for anything."""

_TEXTS: tuple[tuple[type[EngineError], tuple[str, ...]], ...] = (
    (
        StatementError,
        (r"\bParseException\b", r"\bSemanticException\b", r"AccessControlException", r"Permission denied"),
    ),
    (
        EngineBusy,
        (
            r"limit per (?:user|ipaddress|user:ipaddress) reached",
            r"background threadpool cannot accept new task",
            r"RejectedExecutionException",
        ),
    ),
    (
        EngineUnavailable,
        (
            r"Invalid (?:SessionHandle|OperationHandle)",
            r"SparkContext (?:was|has been) (?:shut down|stopped)|stopped SparkContext|SparkContext\.\w+\(\)\" is null",
            r"launch(?:ed)? \w+ engine",  # Kyuubi waits for the engine that it starts
            r"Error validating (?:the )?login|Error validating LDAP",
        ),
    ),
    (StatementCancelled, (r"[Cc]ancelled (?:part of|by|as part)|[Oo]peration (?:was )?cancell?ed",)),
    (DeadlineExceeded, (r"[Qq]uery timed out after",)),
    (
        MemoryExceeded,
        (
            r"Java heap space|GC overhead limit exceeded",
            r"running beyond (?:physical|virtual) memory limits",
            r"[Ee]xceed(?:ing|ed)(?: physical)? memory limits",
            r"MapJoinMemoryExhaustion|return code 3 from \S*MapredLocalTask",
        ),
    ),
    (UnsupportedFeature, (r"UnsupportedOperationException",)),
)
"""Patterns of messages for vague SQLSTATEs; the first match counts."""

_COMPILED = tuple((kind, re.compile("|".join(stems))) for kind, stems in _TEXTS)
_WRAPPERS = re.compile(
    r"(?:"
    r"(?:[a-z]\w*\.)+[\w$]*(?:Exception|Error):\s*"  # a Java class
    r"|Error (?:running query|while (?:compiling|processing) statement|operating \w+):\s*"
    r"|FAILED:\s*"
    r"|\[[A-Z][A-Z0-9_.]*\]\s+(?=(?:[a-z]\w*\.)+[\w$]+:)"  # a condition that is repeated
    r")+"
)
_IN_TEXT = re.compile(r"\bSQLSTATE: (\w{5})\b")
_POSITION = re.compile(r" \(line \d+,? pos \d+\)$")  # in the gateway's SQL
_OF_THE_CONNECTION = (TException, OSError, EOFError, http.client.HTTPException, struct.error, AssertionError)
_UNREACHED = "The connection to HiveServer2 was lost or refused"


@contextmanager
def hive_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except PyHiveError as error:
        status = getattr(error.args[0], "status", None) if error.args else None
        raise (of_status(status) if status else EngineFault(_message(str(error)))) from None
    except TApplicationException as error:
        raise EngineFault(_message(str(error))) from None
    except pa.ArrowException as error:  # text that is not UTF-8, or not a number or date
        raise EngineFault(_message(str(error))) from None
    except ImportError as error:
        raise EngineUnavailable(f"{error.name} is missing on the gateway, and its authentication needs it") from None
    except (*_OF_THE_CONNECTION, *kerberos_errors()) as error:
        # PyHive asserts the protocol's version and a session, which servers of another kind do not have.
        cause = getattr(error, "inner", None) or error  # thrift's own message leaves out the fault of a certificate
        reason = str(getattr(cause, "message", None) or cause) or type(error).__name__
        raise EngineUnavailable(f"{_UNREACHED}: {short_message(reason)}") from None


def of_status(status: TStatus) -> EngineError:
    """Return the error of a call's status."""
    if status.statusCode == TStatusCode.INVALID_HANDLE_STATUS:
        return EngineUnavailable("HiveServer2 does not know the session any more")
    return of_text(status.errorMessage or " ".join(status.infoMessages or ()), status.sqlState)


def of_text(text: str, sqlstate: str | None) -> EngineError:
    """Return the error of an operation that failed."""
    return classify(text, sqlstate or "")(_message(text))


def classify(text: str, sqlstate: str) -> type[EngineError]:
    """Return the class of a SQLSTATE; if it is vague, the class of the message."""
    states = [state for state in (sqlstate, *reversed(_IN_TEXT.findall(text))) if state not in VAGUE]
    error_class = (by_sqlstate(states[0]) if states else None) or by_text(text)
    return error_class or next((kind for kind, stems in _COMPILED if stems.search(text)), EngineFault)


def _message(text: str) -> str:
    wrappers = _WRAPPERS.match(text.strip())
    inner = text.strip()[wrappers.end() :] if wrappers else text
    return _POSITION.sub("", short_message(inner)) or "HiveServer2 gave no reason"
