"""One statement: as it was asked, and as it was checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError, UnsupportedError

from engines.errors import UnsupportedFeature
from engines.protocol import TableSource
from gateway.sql import allowlist, names, parsing, rewriting
from gateway.sql.errors import NotAllowed, StatementTooDeep
from gateway.sql.parsing import ParserLimits

FINGERPRINT_HEX = 32
READ_BACK = 2_048

_WORDS = re.compile(
    r"(?P<alias> AS `(?:[^`]|``)*`)|(?P<name>`(?:[^`]|``)*`)|'(?:[^'\\]|\\.)*'"
    r"|(?<![\w.])-?\d+(?:\.\d*)?(?:E[+-]?\d+)?\w*",
    re.IGNORECASE | re.DOTALL,
)
_LITERALS = re.compile(r"\?(?:, \?)+")


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A query that may run. tables: all that it reads.

    fingerprint: equal for texts that mean the same tree. template: equal for those that differ in their literals only.
    """

    tree: exp.Expr
    tables: tuple[TableSource, ...]
    fingerprint: str
    template: str

    def sql(self, dialect: str) -> str:
        """Write the statement for an engine. Raises UnsupportedFeature where the dialect has no words for it."""
        try:
            text = self.tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
            _read_back(text, dialect, frozenset(table.name for table in self.tables))
            return text
        except (UnsupportedError, ParseError, TokenError) as error:
            raise UnsupportedFeature(f"its dialect has no words for it: {str(error).splitlines()[0]}") from error
        except RecursionError as error:
            raise UnsupportedFeature("the statement is nested too deep to be written in its dialect.") from error


@lru_cache(maxsize=READ_BACK)
def _read_back(text: str, dialect: str, tables: frozenset[str]) -> None:
    """Parse what was written: it must again be one query over the same tables, whatever the writer made of the tree."""
    trees = sqlglot.parse(text, read=dialect)
    if len(trees) != 1 or trees[0] is None:
        raise UnsupportedFeature("the statement cannot be written in its dialect.")
    tree = trees[0]
    try:
        allowlist.check(tree, written=True)
    except NotAllowed as error:
        raise UnsupportedFeature(f"the statement cannot be written in its dialect: {error.message}") from error
    known = tables | {cte.alias for cte in tree.find_all(exp.CTE)}
    if any(node.name not in known or node.db for node in tree.find_all(exp.Table)):
        raise UnsupportedFeature("the statement cannot be written in its dialect.")


def check(sql: str, dialect: str, *, catalog: Mapping[str, TableSource], limits: ParserLimits) -> CheckedStatement:
    """Parse a text, refuse what is not allowed and resolve its tables. Raises SqlError."""
    try:
        tree = parsing.parse(sql, dialect, limits)
        tables = names.resolve(tree, catalog)
        rewriting.settle_casts(tree, dialect)
        rewriting.name_outputs(tree)
        normal = tree.sql(dialect="spark", normalize=True, identify=True, comments=False)
        return CheckedStatement(tree, tables, _digest(normal), _digest(without_literals(normal)))
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error


def without_literals(normal: str) -> str:
    """Put ? for every literal of a text that Spark's writer made, and for every list of them.

    Names that columns are given are left out, because an expression without one is named after its own text.
    """

    def kept(found: re.Match[str]) -> str:
        return found["name"] or ("" if found["alias"] else "?")

    return _LITERALS.sub("?", _WORDS.sub(kept, normal))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_HEX]
