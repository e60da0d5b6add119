"""Which types of arguments Spark accepts, of each function and operator that DuckDB's writer has words for.

Spark itself is asked, by analysing one expression for each combination of types; nothing runs. What it says is written
to ``engines/duckdb/writer/signatures.txt``, by which the writer leaves to Spark what Spark would refuse. Run it again
for another release of Spark: ``python -m benchmarks.signatures``.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.errors import PySparkException

from benchmarks.claim import step
from engines.duckdb.writer.functions.aggregates import AGGREGATE_ARGUMENTS, AGGREGATES, ORDERED_WINDOWS, WINDOWS
from engines.duckdb.writer.functions.scalars import SCALAR_ARGUMENTS, SCALARS
from engines.duckdb.writer.signatures import BY_THEIR_PARTS, FILE, LETTERS, OPERATORS, PAIRWISE
from engines.spark.embedded.server import MIB, ServerSettings, SparkConnectServer
from engines.spark_sql.connect import ConnectSession, statement_plan

SESSIONS = 6
MOST_ARGUMENTS = 3
HEAP_BYTES = 1_024 * MIB

_SPARK_TYPES = {**{kind: kind for kind in LETTERS}, "decimal": "decimal(9,2)"}
_SOURCE = "(SELECT {})".format(
    ", ".join(f"CAST(NULL AS {_SPARK_TYPES[kind]}) AS c_{kind}" for kind in LETTERS if kind != "void")
)
_LITERALS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string"), "'1'"),
    "boolean": "'true'",
    "date": "'2020-01-01'",
    **dict.fromkeys(("timestamp", "timestamp_ntz"), "'2020-01-01 00:00:00'"),
    "binary": "'1'",
}

Accepts = Callable[[str], bool]


def expression(template: str, kinds: Sequence[str], *, literals: bool) -> str:
    """Return an expression over columns of some types. literals: what ROUND wants but as its first argument."""
    columns = ["NULL" if kind == "void" else f"c_{kind}" for kind in kinds]
    first = 1 if len(kinds) > 1 else 0
    return template.format(*columns[:first], *(map(_literal, kinds[first:]) if literals else columns[first:]))


def _literal(kind: str) -> str:
    return "NULL" if kind == "void" else f"CAST({_LITERALS[kind]} AS {_SPARK_TYPES[kind]})"


def templates() -> Iterator[tuple[str, str, int]]:
    """Yield names, templates and numbers of arguments of all that the writer has words for."""
    for name, (template, count) in OPERATORS.items():
        yield name, template, count
    for names, ranges, suffix in (
        (SCALARS, SCALAR_ARGUMENTS, ""),
        ({**AGGREGATES, **WINDOWS}, AGGREGATE_ARGUMENTS, ""),
    ):
        for name in names.keys() - BY_THEIR_PARTS:
            over = " OVER (ORDER BY c_int)" if name in ORDERED_WINDOWS or name in WINDOWS else suffix
            for count in ranges.get(name, range(1, 2)):
                if count > MOST_ARGUMENTS or (name in PAIRWISE and count > len(("one", "other"))):
                    break
                arguments = ", ".join(f"{{{place}}}" for place in range(count))
                yield name, f"{name}({arguments}){over}", count


def signatures(accepts: Accepts, template: str, count: int, *, pairwise: bool) -> Iterable[Sequence[str]]:
    """Return what is accepted, as rows of one set of letters for each argument."""
    for literals in (False, True):

        def taken(kinds: Sequence[str], literals: bool = literals) -> bool:
            return accepts(expression(template, kinds, literals=literals))

        if count < MOST_ARGUMENTS or pairwise:
            places = min(count, 2)
            found = _as_products([kinds for kinds in itertools.product(LETTERS, repeat=places) if taken(kinds)])
        else:
            found = _by_place(taken, count)
        if found and all(part.strip(LETTERS["void"]) for row in found for part in row):
            break
    return found


def _by_place(taken: Callable[[Sequence[str]], bool], count: int) -> list[Sequence[str]]:
    """Ask for the types of each argument beside usual ones of the others."""
    usual = next(filter(taken, itertools.product(("string", "int", "double", "date"), repeat=count)), None)
    if usual is None:
        return []
    found = []
    for place in range(count):
        kinds = [kind for kind in LETTERS if taken([*usual[:place], kind, *usual[place + 1 :]])]
        found.append("".join(LETTERS[kind] for kind in kinds))
    return [found]


def _as_products(accepted: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Put tuples of types together that differ in their first type only."""
    if accepted and len(accepted[0]) == 0:
        return [()]
    if accepted and len(accepted[0]) == 1:
        return [("".join(LETTERS[kind] for (kind,) in accepted),)]
    seconds: Mapping[str, list[str]] = defaultdict(list)
    for one, other in accepted:
        seconds[one].append(LETTERS[other])
    firsts: Mapping[str, list[str]] = defaultdict(list)
    for one, others in seconds.items():
        firsts["".join(others)].append(LETTERS[one])
    return [("".join(ones), others) for others, ones in firsts.items()]


def ask(address: str) -> str:
    """Ask a server for everything; returns the file's text."""
    sessions = [ConnectSession(address) for _ in range(SESSIONS)]
    for session in sessions:
        session.configure()

    def accepts(session: ConnectSession, expression: str) -> bool:
        try:
            session.schema(statement_plan(f"SELECT {expression} FROM {_SOURCE}", ()))
        except PySparkException:
            return False
        return True

    def lines(numbered: tuple[int, tuple[str, str, int]]) -> list[str]:
        place, (name, template, count) = numbered
        session = sessions[place % SESSIONS]
        rows = signatures(lambda text: accepts(session, text), template, count, pairwise=name in PAIRWISE)
        step(f"{name} {count}")
        return [" ".join([name, *row]) for row in rows]

    wanted = list(enumerate(templates()))
    with ThreadPoolExecutor(SESSIONS) as pool:
        shares = [
            pool.submit(lambda share: [lines(one) for one in share], wanted[at::SESSIONS]) for at in range(SESSIONS)
        ]
        found = [lines for share in shares for lines in share.result()]
    return "".join(f"{line}\n" for line in sorted({line for lines in found for line in lines}))


def main() -> None:
    """Start a Spark, ask it, and write the file."""
    with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as work:
        server = SparkConnectServer(ServerSettings(work_folder=Path(work), driver_memory_bytes=HEAP_BYTES))
        try:
            FILE.write_text(ask(server.start()), encoding="ascii")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
