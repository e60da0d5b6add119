"""Regular expressions of Python go back and try again: none may do so for long, and none comes from a client."""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

import pytest

import engines
import gateway
import metastore
import selector
import statsproc

ROOMS = (engines, gateway, metastore, selector, statsproc)
PIECES = (
    *(
        " ",
        "a",
        "1",
        "(",
        ")",
        "'",
        '"',
        "/",
        "\\",
        "-",
        "*/",
        "`",
        ".",
        ",",
        "\n",
        "\t ",
        "\r\n",
        "::",
        "|  ",
        "[",
        "<",
        "_",
    ),
    *("a.", "/a", "1.", "a ", "' ", "a=", "a,", "0:", "''", '""', "ab1 ", "#0", "? , ", ";", " ;", "e1", "%", "array<"),
)
ENDS = ("", "!", "\0")
REPEATED = 200
LONGEST_S = 5.0  # of a single match; what grows exponentially never comes to an end
MADE_AT_RUNTIME = {  # where a pattern is put together, and from what
    "engines/arrow_types.py": "constants",
    "engines/duckdb/errors.py": "constants",
    "engines/hive/engine.py": "names of types",
    "engines/hive/errors.py": "constants",
    "engines/impala/errors.py": "constants",
    "engines/hive/views.py": "a table's name, quoted",
    "gateway/drivers/jdbc.py": "a driver's pattern, of which only pieces of one length are left",
    "engines/duckdb/writer/functions/casts.py": "constants",
    "engines/duckdb/writer/functions/patterns.py": "a pattern of what all engines understand, on the empty text",
    "gateway/catalog/lake/known_catalogs.py": "constants",
    "gateway/commands/explain.py": "constants",
    "gateway/commands/grammar/token_reader.py": "constants",
    "gateway/commands/session.py": "constants",
    "gateway/security/access/rules.py": "names with stars in an administrator's file, as fnmatch writes them: linear",
    "selector/cardinality/predicates/patterns.py": "LIKE between two %: of one length",
    "engines/duckdb/plan_reader.py": "a name",
    "engines/impala/plan_reader/outline.py": "constants",
    "statsproc/read/files.py": "a table's folder, escaped, on an error of Spark's",
    "statsproc/data/ingest.py": "a delimiter, escaped, of who runs the command",
}


COMPILED = "gssapi"
"""Package of the extra kerberos, which machines without a compiler lack."""


def modules() -> Iterator[ModuleType]:
    for room in ROOMS:
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if "migrations" in found.name or found.name.endswith("__main__"):
                continue
            try:
                yield importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name != COMPILED:
                    raise


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield all patterns that modules hold, each with its name."""
    for module in modules():
        waiting = [(f"{module.__name__}.{name}", value) for name, value in vars(module).items()]
        while waiting:
            name, value = waiting.pop()
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                yield name, value
            elif isinstance(value, tuple | list | frozenset):
                waiting += [(name, each) for each in value if isinstance(each, tuple | re.Pattern)]


def test_no_pattern_of_ours_explodes() -> None:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    texts = ["".join((piece * REPEATED, end)) for piece, end in itertools.product(PIECES, ENDS)]
    before = signal.signal(signal.SIGPROF, too_long)
    slow = []
    try:
        for name, pattern in {id(pattern): (name, pattern) for name, pattern in patterns()}.values():
            for text in texts:
                signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
                try:
                    pattern.search(text)
                    pattern.fullmatch(text)
                except TimeoutError:
                    slow.append((name, text[:10]))
                    break
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    assert slow == []


def made_at_runtime(path: Path) -> bool:
    """Tell whether a file has patterns that are no constants."""
    names = {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "re" and not isinstance(node.args[0], ast.Constant):
                return True
    return False


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_patterns_are_constants_or_accounted_for(room: ModuleType) -> None:
    top = Path(room.__path__[0])
    found = {str(path.relative_to(top.parent)) for path in top.rglob("*.py") if made_at_runtime(path)}
    assert found <= set(MADE_AT_RUNTIME)
