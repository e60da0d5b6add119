"""One statement: as it was asked, and as it was checked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from engines.errors import UnsupportedFeature
from engines.protocol import TableSource
from gateway.sql import names, parsing, rewriting
from gateway.sql.errors import StatementTooDeep
from gateway.sql.parsing import ParserLimits

FINGERPRINT_HEX = 32


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A query that may run. tables: all that it reads. fingerprint: equal for texts that mean the same tree."""

    tree: exp.Expr
    tables: tuple[TableSource, ...]
    fingerprint: str

    def sql(self, dialect: str) -> str:
        """Write the statement for an engine. Raises UnsupportedFeature where the dialect has no words for it."""
        try:
            return self.tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
        except UnsupportedError as error:
            raise UnsupportedFeature(str(error).splitlines()[0]) from error
        except RecursionError as error:
            raise UnsupportedFeature("the statement is nested too deep to be written in its dialect.") from error


def check(sql: str, dialect: str, *, catalog: Mapping[str, TableSource], limits: ParserLimits) -> CheckedStatement:
    """Parse a text, refuse what is not allowed and resolve its tables. Raises SqlError."""
    try:
        tree = parsing.parse(sql, dialect, limits)
        tables = names.resolve(tree, catalog)
        rewriting.settle_casts(tree, dialect)
        rewriting.name_outputs(tree)
        return CheckedStatement(tree, tables, _fingerprint(tree))
    except RecursionError as error:
        raise StatementTooDeep("The statement is nested too deep.") from error


def _fingerprint(tree: exp.Expr) -> str:
    normal = tree.sql(dialect="spark", normalize=True, identify=True, comments=False)
    return hashlib.sha256(normal.encode()).hexdigest()[:FINGERPRINT_HEX]
