"""Impala's errors -> the error tree. The only place that knows them.

HiveServer2 carries Impala's text and nothing else: every failure has the same SQLSTATE, and no code. The table below
goes by the stems of those texts, the first match counts, and what matches nothing becomes an ``EngineFault``. Texts
that quote the statement (of its parser, its analysis, its authorization) come first: no word of a client may look
like a failure of the engine.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from impala.error import Error as ImpylaError  # type: ignore[import-untyped]
from impala.error import HttpError
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
from engines.server_access import kerberos_errors


class CoordinatorLost(EngineUnavailable):
    """The coordinator itself does not answer or is not available; another one may."""


_Table = tuple[tuple[type[EngineError], tuple[str, ...]], ...]

_POLICIES_AND_WRITES = (
    r"[Cc]olumn masking|row-filtering policies",
    r"\b(?:INSERT|UPDATE|DELETE|UPSERT|MERGE|CREATE|ALTER|DROP|TRUNCATE|OPTIMIZE|CONVERT TO|LOAD DATA|COMPUTE STATS)\b",
    r"\b[Ww]rit(?:e|ing) |\btable property\b|'write\.|\bSetting the query option\b|\bPartition exprs\b",
)
"""What another engine must not do instead: show what a policy hides, write what was refused here."""

_ANALYSIS: _Table = (
    (CoordinatorLost, (r"not ready to accept user requests",)),
    (StatementError, _POLICIES_AND_WRITES),
    (
        UnsupportedFeature,
        (
            r"unknown for database",  # a function
            r"No matching function with signature",
            r"not (?:yet )?supported",
            r"(?:is|are) only supported",
            r"only supports?\b",
            r"\b(?:does not|don't|doesn't) support",
            r"\bUnsupported",
            r"can't return complex types",
        ),
    ),
    (StatementError, (r"",)),
)
"""What follows ``AnalysisException:``; what stands in quotes is the statement's and makes nothing fail over."""

_TEXTS: _Table = (
    (StatementError, (r"^ParseException", r"^Syntax error", r"AuthorizationException", r"does not have privileges")),
    (StatementError, (r"(?:does not|doesn't) have (?:necessary )?permissions?\b", r"^UDF ERROR:", r"^PARSE ERROR:")),
    (StatementError, (r"AI Generate Text Error",)),
    # The end of a query that somebody wanted, and policy.
    (EngineUnavailable, (r"cancelled due to unresponsive backend",)),
    (DeadlineExceeded, (r"expired due to (?:execution time limit|client inactivity)", r"terminated due to CPU limit")),
    (
        StatementError,
        (
            r"terminated due to (?:scan bytes|rows produced) limit",
            r"terminated due to join rows produced",
            r"larger than allowed limit of",
            r"exceeds the maximum statement length",
        ),
    ),
    (StatementCancelled, (r"^Cancelled\b", r"^Query \S+ cancelled\b", r"\bCancelled (?:in|from|by) ")),
    # Admission: a full queue passes, a pool that is too small for the statement does not.
    (EngineBusy, (r"Admission for query exceeded timeout", r"queue full", r"memory pressure in admissiond")),
    (
        MemoryExceeded,
        (
            r"minimum memory reservation .{0,200}?greater than",
            r"request memory needed .{0,200}?greater than",
            r"Failed to get minimum memory reservation",
        ),
    ),
    (EngineBusy, (r"Rejected query from pool", r"thread reservation on backend", r"sum of thread reservations")),
    # Memory, and what an operator that spills runs out of.
    (
        MemoryExceeded,
        (
            r"(?i:memory limit exceeded)",
            r"without exceeding limit",
            r"failed to allocate \d+ bytes",
            r"^failed to allocate$",
            r"Failed to allocate \S+ bytes",
            r"Memory allocation of \S+ bytes failed",
            r"allocations exceeded memory limits",
            r"Unexpected error allocating \S+ byte buffer",
            r"Could not free memory by spilling",
            r"Scratch space limit of .* exceeded",
            r"Could not create files in any configured scratch directories",
            r"Repartitioning did not reduce the size of a spilled partition",
            r"was partitioned the maximum number of",
            r"Unable to perform Null-Aware Anti-Join",
            r"is larger than query mem limit",
        ),
    ),
    (StatementError, _POLICIES_AND_WRITES),
    (
        UnsupportedFeature,
        (
            r"could not be materialized .* max_row_size",
            r"Row batch cannot be serialized",
            r"Impala does not support\b",
            r"^unsupported encoding|: unsupported encoding",
            r"\b(?:is|are) not (?:yet )?supported\b",
            r"Support was removed in Impala",
            r"Scanner plugin .* is not one of the enabled plugins",
            r"was longer than supported limit",
        ),
    ),
    # Somebody, or something, is gone.
    (CoordinatorLost, (r"Server is being shut down", r"is in standby mode|incompatible protocol version")),
    (
        EngineUnavailable,
        (
            r"no registered backends available",
            r"unreachable impalad",
            r"RPC (?:Error|recv timed out|client failed to connect)",
            r"\brpc\b.{0,300}?(?:failed|timed out)",
            r"Network error: ",
            r"Couldn't (?:open transport|get a client) for",
            r"timed out waiting for receiver fragment instance",
            r"DataStreamRecvr .* is closed already",
            r"Failed to submit .* to thread pool|failed to finish before the .* second timeout",
            r"Failed to create thread ",
            r"local disk IO fatal error",
            r"from scratch file",
            r"Session expired due to|Session closed because",
            r"Invalid session id|Invalid or unknown query handle|Query id \S+ not found",
            r"SSL socket creation failed",
            r"user authorized on the connection .* does not match",
            r"Error (?:validating LDAP|verifying JWT|verifying OAuth)",
        ),
    ),
    (EngineBusy, (r"InconsistentMetadataFetchException",)),
    # Data that is not as the table says, values that do not fit.
    (
        StatementError,
        (
            r"is corrupt\b|[Ff]ile appears corrupted|[Dd]ata is likely corrupt|likely data corrupted",
            r"data (?:file )?corruption|[Pp]ossible corruption",
            r"contains an out of range|invalid time of day|out of range date value",
            r"Error converting column",
            r"Subquery must not return more than one row",
            r"incompatible (?:Parquet|ORC) schema",
            r"decimal precision set|precision that does not match|type_length set|converted type set to DECIMAL",
            r"contains decimal data but",
            r"invalid Parquet version number|Invalid metadata size in file footer|has an invalid version header",
            r"^ParquetScanner: reached EOF|^Column metadata states|^Metadata states that in group",
            r"(?:definition|repetition) level, even|^Mismatched number of values|invalid column offsets",
            r"^Snappy|^LZ4Block|^Decompressor: |Decompressor error|Decompression failed|end of compressed file",
            r"Metadata for file .* appears stale",
            r"conflicting Avro|Unresolvable types for column|Inconsistent table metadata|missing from file",
            r"is map(?:ped)? to column .* in ORC file",
            r"^Invalid (?:query option|value for query option)|^Failed to parse query option",
            r"would need to be cast to|requires return type|are not comparable|is ambiguous",
            r"Could not resolve (?:table reference|column/field reference|path)",
            r"^Invalid AES|IV vector|AES only supports|^ECB mode",
            r"Bad date/time conversion format|Invalid Date Part Field|Invalid Truncate Unit",
            r"Illegal (?:starting position|match parameter)",
            r"Could not compile regexp pattern",
            r"Invalid partition filtering expression|^Table is not partitioned",
        ),
    ),
)
"""Class and stems of the texts that stand for it."""

_BY_CLASS: tuple[tuple[type[Exception], type[EngineError]], ...] = (
    (TTransportException, CoordinatorLost),
    (HttpError, CoordinatorLost),
    (TApplicationException, EngineFault),
    (TProtocolException, CoordinatorLost),  # an answer cut off in its middle
    (http.client.HTTPException, CoordinatorLost),
    (pa.ArrowInvalid, StatementError),  # text that is no UTF-8
    (OSError, CoordinatorLost),
    *((kind, CoordinatorLost) for kind in kerberos_errors()),  # no ticket, or not for this coordinator
    (EOFError, CoordinatorLost),
)
"""Exceptions of the connection: nothing of theirs is Impala's own text."""

_OF_THE_DRIVER = (ImpylaError, *(kind for kind, _ in _BY_CLASS))
_COMPILED = tuple((kind, tuple(map(re.compile, stems))) for kind, stems in _TEXTS)
_COMPILED_ANALYSIS = tuple((kind, tuple(map(re.compile, stems))) for kind, stems in _ANALYSIS)
_ANALYSIS_PREFIX = re.compile(r"^(?:AnalysisException|NotImplementedException|UnsupportedOperationException): ?")
_WRAPPER = re.compile(r"^(?:ERROR: |Query \S+ failed:\s+|(?:[A-Za-z]\w*Exception: )?Query failed: )+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PEAK = re.compile(r"Query\([0-9a-f:]+\):.*?\bPeak=(\d+(?:\.\d+)?) ?([KMGT]?B)?")
_UNITS = {None: 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_PLACE = re.compile(r"(?:\b[a-z][a-z0-9]*:/+|(?<![\w./])/)(?:[^\s'\"`,;)\]/]+/)*[^\s'\"`,;:)\]]+")
_MESSAGE_LIMIT = 500
_UNREACHED = "The connection to Impala was lost or refused"


@contextmanager
def impala_errors() -> Iterator[None]:
    """Let only EngineError leave the block. Wrap every call of the driver, fetching too."""
    try:
        yield
    except _OF_THE_DRIVER as error:
        raise translate(error) from None


def translate(error: Exception) -> EngineError:
    """Return what an exception of the driver means to the gateway."""
    text = str(error)
    kind = next((kind for driver, kind in _BY_CLASS if isinstance(error, driver)), None)
    if kind is None:
        return from_text(text)
    if kind is CoordinatorLost:
        return kind(f"{_UNREACHED}: {short_message(text or type(error).__name__)}")
    return kind(short_message(text))


def from_text(text: str) -> EngineError:
    """Return the error that an operation's text stands for."""
    return classify(text)(short_message(text), peak_bytes=peak_bytes(text))


def classify(text: str) -> type[EngineError]:
    """Tell what a text of Impala means; numbers, names, line breaks and what wraps it do not matter."""
    message = _WRAPPER.sub("", " ".join(text.split()))
    analysis = _ANALYSIS_PREFIX.match(message)
    if analysis is None:
        return next((kind for kind, stems in _COMPILED if any(stem.search(message) for stem in stems)), EngineFault)
    message = message[analysis.end() :]
    unquoted = _QUOTED.sub("''", message)
    return next(
        kind
        for kind, stems in _COMPILED_ANALYSIS
        if any(stem.search(unquoted if kind.fails_over else message) for stem in stems)
    )


def peak_bytes(text: str) -> int | None:
    """Return the memory that a query had reached, from the dump of its trackers in a text."""
    match = _PEAK.search(text)
    return round(float(match.group(1)) * _UNITS[match.group(2)]) if match else None


def short_message(text: str) -> str:
    """Return the first line of what Impala said: no trackers, no paths."""
    lines = _WRAPPER.sub("", text.strip()).splitlines()
    line = _PLACE.sub("...", next((one.strip() for one in lines if one.strip()), "Impala gave no reason"))
    return line if len(line) <= _MESSAGE_LIMIT else f"{line[: _MESSAGE_LIMIT - 3]}..."
