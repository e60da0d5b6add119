"""What HiveServer2 and the way to it answer -> the tree in ``engines/errors.py``, in one place.

Spark behind HiveServer2 tells its SQLSTATE, beside its words or at their end, and that decides. Hive itself has few,
and two of them say nothing: HY000 and 08S01 stand for whatever went wrong in a task. There, and without any, the words
decide. The rest is an ``EngineFault``.
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
"""Words where the SQLSTATE says nothing; the first match counts."""

_COMPILED = tuple((kind, re.compile("|".join(stems))) for kind, stems in _TEXTS)
_WRAPPERS = re.compile(
    r"(?:"
    r"(?:[a-z]\w*\.)+[\w$]*(?:Exception|Error):\s*"  # a Java class
    r"|Error (?:running query|while (?:compiling|processing) statement|operating \w+):\s*"
    r"|FAILED:\s*"
    r"|\[[A-Z][A-Z0-9_.]*\]\s+(?=(?:[a-z]\w*\.)+[\w$]+:)"  # a condition that is told again
    r")+"
)
_IN_TEXT = re.compile(r"\bSQLSTATE: (\w{5})\b")
_POSITION = re.compile(r" \(line \d+,? pos \d+\)$")  # in the SQL that we wrote
_UNREACHED = "The connection to HiveServer2 was lost or refused"


@contextmanager
def hive_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except PyHiveError as error:
        status = getattr(error.args[0], "status", None) if error.args else None
        raise (of_status(status) if status else EngineFault(_said(str(error)))) from None
    except TApplicationException as error:
        raise EngineFault(_said(str(error))) from None
    except pa.ArrowException as error:  # text that is no UTF-8, or no number or date
        raise EngineFault(_said(str(error))) from None
    except ImportError as error:
        raise EngineUnavailable(f"{error.name} is missing on the gateway, and its authentication needs it") from None
    except (TException, OSError, EOFError, http.client.HTTPException, struct.error, AssertionError) as error:
        # PyHive asserts what a server of another kind does not keep: the protocol's version, a session.
        cause = getattr(error, "inner", None) or error  # thrift's own words leave out what was wrong with a certificate
        reason = str(getattr(cause, "message", None) or cause) or type(error).__name__
        raise EngineUnavailable(f"{_UNREACHED}: {short_message(reason)}") from None


def of_status(status: TStatus) -> EngineError:
    """Return the error that a call's status stands for."""
    if status.statusCode == TStatusCode.INVALID_HANDLE_STATUS:
        return EngineUnavailable("HiveServer2 does not know the session any more")
    return of_text(status.errorMessage or " ".join(status.infoMessages or ()), status.sqlState)


def of_text(text: str, sqlstate: str | None) -> EngineError:
    """Return the error that an operation's end stands for."""
    return classify(text, sqlstate or "")(_said(text))


def classify(text: str, sqlstate: str) -> type[EngineError]:
    """Tell what a SQLSTATE means, or the words where it is vague."""
    told = [state for state in (sqlstate, *reversed(_IN_TEXT.findall(text))) if state not in VAGUE]
    found = (by_sqlstate(told[0]) if told else None) or by_text(text)
    return found or next((kind for kind, stems in _COMPILED if stems.search(text)), EngineFault)


def _said(text: str) -> str:
    wrapped = _WRAPPERS.match(text.strip())
    said = text.strip()[wrapped.end() :] if wrapped else text
    return _POSITION.sub("", short_message(said)) or "HiveServer2 gave no reason"
