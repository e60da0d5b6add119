"""Spark's own SQL test files, asked of a gateway over HTTP and of Spark itself by the text as it stands.

The files are not part of this project: they are read from a folder (``sql/core/src/test/resources/sql-tests/inputs``
in Spark's sources). Each file has a database of its own on both sides. Settings that a file asks for (``--SET``, SET)
are left out on both sides, for the promise is about ANSI mode in UTC. Temporary views become views at the gateway,
since a POST has no session, USE names the database of the statements behind it, and tables of CSV or JSON become
Parquet. What Spark answers is kept in a folder, so that a second run asks the gateway alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from benchmarks.claim import RunFailed, show_table, step
from benchmarks.server_process import gateway_process
from engines.spark.embedded.server import MIB, ServerSettings, SparkConnectServer
from engines.spark_sql.session_settings import SESSION_SETTINGS
from gateway.execution.parity.comparing import difference

for _logger in (
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
):  # of pyspark: a stack trace per wrong statement
    logging.getLogger(_logger).setLevel(logging.CRITICAL + 1)

REASONS = 25
_PARTS_OF_VARIANT = {"value", "metadata"}
_OF_THE_CLIENT = ("ValueError", "PySparkTypeError", "ArrowInvalid")  # which has no values of intervals
_WAIT_S = 120.0
_LONGEST_REASON = 110
_IMPORT = re.compile(r"^--IMPORT\s+(\S+)", re.MULTILINE)
_SETTING = re.compile(r"\s*(?:SET|RESET)\b(?!\s+CATALOG)", re.IGNORECASE)
_QUERY = re.compile(
    r"(?!.*\bINSERT\s+(?:INTO|OVERWRITE)\b)[\s(]*(?:SELECT|WITH|FROM|VALUES|TABLE|MAP|REDUCE)\b", re.I | re.S
)
_TEMPORARY = re.compile(
    r"\A(\s*CREATE\s+)(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMPORARY|TEMP)\s+(VIEW\s)", re.IGNORECASE
)
_USE = re.compile(r"\s*USE\s+(?:(?:DATABASE|SCHEMA|NAMESPACE)\s+)?`?(\w+)`?\s*\Z", re.IGNORECASE)
_GLOBAL = re.compile(r"\bglobal_temp\.", re.IGNORECASE)
_SOURCE = re.compile(r"\s+USING\s+(?:CSV|JSON)\b", re.IGNORECASE)
_NAMES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\b\d+\b")


class Outcome(StrEnum):
    """Outcome of one query on both sides."""

    EQUAL = "equal"
    BOTH_FAIL = "errors on both"
    REFUSED = "refused, but Spark answers"
    WRONG = "wrong"
    ANSWERED = "answered, but Spark has an error"
    UNKNOWN = "answered, but Spark's client shows no values"
    INTERNAL = "a failure of ours"


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One query's outcome. detail: the reason, or what differs. engine: that answered, None where there is none."""

    file: str
    sql: str
    outcome: Outcome
    detail: str = ""
    engine: str | None = None


def compare(
    folder: Path, work: Path, *, answers: Path | None = None, only: str = "", names: bool = False
) -> tuple[SuiteResult, ...]:
    """Ask all queries of both.

    answers: folder that keeps what Spark answered. names: whether those of columns count.
    """
    files = [file for file in sorted(folder.rglob("*.sql")) if only in str(file.relative_to(folder))]
    if not files:
        raise RunFailed(f"{folder} holds no .sql file; it is to be Spark's sql-tests/inputs")
    truth = _Truth(work / "truth", answers or work / "answers")
    results: list[SuiteResult] = []
    settings = {"FUSION_SPARK__ENABLED": "true", "FUSION_LIMITS__DEADLINE_S": str(_WAIT_S)}
    try:
        with (
            gateway_process(work, **settings) as gateway,
            httpx.Client(base_url=gateway.url, timeout=2 * _WAIT_S) as client,
        ):
            for place, file in enumerate(files):
                statements = statements_of(file)
                expected = truth.answers_to(statements)
                results += _ask_file(
                    client, f"suite_{place}", str(file.relative_to(folder)), statements, expected, names
                )
                counts = Counter(result.outcome for result in results)
                step(f"{file.name}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome))
    finally:
        truth.close()
    return tuple(results)


def report(results: tuple[SuiteResult, ...]) -> Mapping[str, float]:
    """Print what became of them, and why; return the figures."""
    counts = Counter(result.outcome for result in results)
    show_table("Spark's suite", ["outcome", "queries"], [[outcome, str(counts[outcome])] for outcome in Outcome])
    for outcome in (Outcome.WRONG, Outcome.INTERNAL, Outcome.ANSWERED):
        for result in results:
            if result.outcome is outcome:
                step(f"{outcome} ({result.engine}) {result.file}: {result.detail}\n    {result.sql}")
    refused = [result for result in results if result.outcome is Outcome.REFUSED]
    reasons = Counter(_NAMES.sub("?", result.detail)[:_LONGEST_REASON] for result in refused)
    rows = [[reason, str(count)] for reason, count in reasons.most_common(REASONS)]
    show_table("refused, though Spark answers", ["reason", "queries"], rows)
    answered = counts[Outcome.EQUAL] + counts[Outcome.REFUSED] + counts[Outcome.WRONG] + counts[Outcome.INTERNAL]
    return {
        "suite_queries": float(len(results)),
        "suite_wrong": float(counts[Outcome.WRONG]),
        "suite_internal": float(counts[Outcome.INTERNAL]),
        "suite_answered": float(counts[Outcome.ANSWERED]),
        "suite_refused_share": counts[Outcome.REFUSED] / max(1, answered),
    }


def statements_of(file: Path) -> tuple[str, ...]:
    """Return a file's statements without settings; those of files that it imports come first."""
    text = file.read_text(encoding="utf-8")
    root = next(folder for folder in file.parents if folder.name == "inputs") if "inputs" in file.parts else file.parent
    imported = [statement for name in _IMPORT.findall(text) for statement in statements_of(root / name)]
    return (*imported, *(one for one in _split(text) if not _SETTING.match(one)))


def _split(text: str) -> Iterator[str]:
    """Cut a text at semicolons outside quotes, comments and compound statements; comments are left out."""
    part: list[str] = []
    place, end = 0, len(text)
    while place < end:
        sign = text[place]
        if text.startswith("--", place):
            place = _after(text, "\n", place) - 1 if "\n" in text[place:] else end
        elif text.startswith("/*", place) and not text.startswith("/*+", place):
            place = _after(text, "*/", place)
        elif sign in "'\"`":
            start, place = place, place + 1
            while place < end and text[place] != sign:
                place += 2 if text[place] == "\\" and sign != "`" else 1
            place += 1
            part.append(text[start:place])
        elif sign == ";":
            yield from _whole(part)
            part, place = [], place + 1
        else:
            part.append(sign)
            place += 1
    yield from _whole(part)


def _after(text: str, mark: str, place: int) -> int:
    start = text.find(mark, place)
    return len(text) if start < 0 else start + len(mark)


def _whole(part: list[str]) -> Iterator[str]:
    statement = "".join(part).strip()
    if statement:
        yield statement


class _Truth:
    """Answers of Spark itself to statements; each file is asked once, and its answers are stored in a folder."""

    def __init__(self, work: Path, answers: Path) -> None:
        self._work = work
        self._answers = answers
        self._server: SparkConnectServer | None = None

    def answers_to(self, statements: tuple[str, ...]) -> list[pa.Table | str]:
        """Return a table or the error of each statement, asked one after the other in a session of their own."""
        folder = self._answers / hashlib.sha256(json.dumps(statements).encode()).hexdigest()[:24]
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            with self._session() as spark:
                for place, statement in enumerate(statements):
                    answer = _answer(spark, statement)
                    if isinstance(answer, str):
                        (folder / f"{place}.txt").write_text(answer, encoding="utf-8")
                    else:
                        with (
                            pa.OSFile(str(folder / f"{place}.arrow"), "wb") as sink,
                            pa.ipc.new_file(sink, answer.schema) as out,
                        ):
                            out.write_table(answer)
            (folder / "complete").touch()
        return [_stored_answer(folder, place) for place in range(len(statements))]

    def close(self) -> None:
        """End Spark, if it was asked."""
        if self._server is not None:
            self._server.stop()

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        if self._server is None:
            self._work.mkdir(parents=True, exist_ok=True)
            self._server = SparkConnectServer(ServerSettings(work_folder=self._work, driver_memory_bytes=1_536 * MIB))
        spark = SparkSession.builder.remote(self._server.start()).create()
        try:
            for name, value in SESSION_SETTINGS.items():
                spark.conf.set(name, value)
            spark.sql("DROP DATABASE IF EXISTS suite CASCADE").toArrow()
            spark.sql("CREATE DATABASE suite").toArrow()
            spark.sql("USE suite").toArrow()
            yield spark
        finally:
            spark.stop()


def _answer(spark: SparkSession, statement: str) -> pa.Table | str:
    try:
        return spark.sql(statement).toArrow()
    except (PySparkException, pa.ArrowException, ValueError, TypeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"


def _stored_answer(folder: Path, place: int) -> pa.Table | str:
    error = folder / f"{place}.txt"
    if error.exists():
        return error.read_text(encoding="utf-8")
    with pa.OSFile(str(folder / f"{place}.arrow")) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def _ask_file(
    client: httpx.Client,
    database: str,
    file: str,
    statements: tuple[str, ...],
    expected: list[pa.Table | str],
    names: bool,
) -> Iterator[SuiteResult]:
    _ask(client, f"CREATE DATABASE IF NOT EXISTS {database}", "default")
    for statement, truth in zip(statements, expected, strict=True):
        used = _USE.match(statement)
        if used is not None and not isinstance(truth, str):
            database = used[1].lower()
            continue
        ours = _SOURCE.sub(" USING parquet", _TEMPORARY.sub(r"\1OR REPLACE \2", _GLOBAL.sub("", statement)))
        answer = _ask(client, ours, database)
        if _QUERY.match(statement):
            yield _result(file, statement, truth, answer, names)
        elif isinstance(answer, _Failure) and not isinstance(truth, str):
            step(f"{file}: not set up: {answer.code} {answer.message}\n    {statement[:300]}")


@dataclass(frozen=True, slots=True)
class _Failure:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class _Answer:
    table: pa.Table
    engine: str | None


def _ask(client: httpx.Client, sql: str, database: str) -> _Answer | _Failure:
    body = {"sql": sql, "database": database, "wait_s": _WAIT_S, "max_rows": 0}
    reply = client.post("/v1/queries", json=body)
    try:
        record = reply.json()
    except ValueError:
        return _Failure(f"HTTP {reply.status_code}", reply.text[:200])
    failure = record.get("error")
    if failure or reply.status_code >= httpx.codes.BAD_REQUEST:
        failure = failure if isinstance(failure, dict) else record
        return _Failure(str(failure.get("code")), str(failure.get("message")))
    rows = client.get(f"/v1/queries/{record['id']}/result", params={"format": "arrow"})
    if rows.status_code != httpx.codes.OK:
        failure = rows.json().get("error", {})
        return _Failure(str(failure.get("code")), str(failure.get("message")))
    return _Answer(pa.ipc.open_stream(rows.content).read_all(), record.get("engine"))


def _comparable(truth: pa.Table, ours: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both answers with times of six digits, and without values of a VARIANT, which are texts here."""
    for place, field in reversed(list(enumerate(truth.schema))):
        if pa.types.is_time(field.type):
            truth = truth.set_column(place, field.name, truth.column(place).cast(pa.time64("us")))
        elif pa.types.is_struct(field.type) and {part.name for part in field.type} == _PARTS_OF_VARIANT:
            truth, ours = truth.remove_column(place), ours.remove_column(place)
    return truth, ours


def _result(file: str, sql: str, truth: pa.Table | str, answer: _Answer | _Failure, names: bool) -> SuiteResult:
    if isinstance(answer, _Failure):
        detail = f"{answer.code}: {answer.message}"
        if answer.code.startswith(("INTERNAL", "HTTP", "ENGINE_", "METASTORE_")):
            return SuiteResult(file, sql, Outcome.INTERNAL, detail)
        return SuiteResult(file, sql, Outcome.BOTH_FAIL if isinstance(truth, str) else Outcome.REFUSED, detail)
    if isinstance(truth, str):
        outcome = Outcome.UNKNOWN if truth.startswith(_OF_THE_CLIENT) else Outcome.ANSWERED
        return SuiteResult(file, sql, outcome, truth.partition("\n")[0], answer.engine)
    if len(truth.schema.names) != len(answer.table.schema.names):
        detail = f"columns: {truth.schema.names} and {answer.table.schema.names}"
        return SuiteResult(file, sql, Outcome.WRONG, detail, answer.engine)
    differs = difference(*_comparable(truth, answer.table), names=names)
    return SuiteResult(
        file, sql, Outcome.EQUAL if differs is None else Outcome.WRONG, str(differs or ""), answer.engine
    )
