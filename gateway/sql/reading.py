"""Spark's SQL with its functions as they were written.

The parser knows most functions and turns them into nodes of its own, which it writes as something that should be the
same: LOG10(x) becomes LOG(10, x), which Spark computes less exactly. Here a function is a name with arguments. Only
those with words between their arguments (CAST, EXTRACT, TRIM, ...) have nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from gateway.sql.errors import SyntaxInvalid
from gateway.sql.position import position_of

Parsers = dict[str, Callable[..., Any]]

_WITH_WORDS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "OVERLAY")
_WITH_UNITS = ("date_add", "dateadd", "date_diff", "datediff", "timestampadd", "timestampdiff")
_BIT_OPERATORS = (  # by rank, the closest first
    (exp.BitwiseLeftShift, exp.BitwiseRightShift),
    (exp.BitwiseAnd,),
    (exp.BitwiseXor,),
    (exp.BitwiseOr,),
)
_WITHOUT_BRACKETS = ("ANY", "CASE", "IF")


def _only(parsers: Parsers, names: tuple[str, ...]) -> Parsers:
    return {name: parser for name, parser in parsers.items() if name in names}


class _SparkParser(SparkParser):
    """Spark's parser; its operators are ranked as Spark ranks them, || beside + and -."""

    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = _only(SparkParser.FUNCTION_PARSERS, _WITH_WORDS)
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = _only(SparkParser.NO_PAREN_FUNCTION_PARSERS, _WITHOUT_BRACKETS)
    TERM: ClassVar = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}

    def _parse_bitwise(self) -> exp.Expr | None:
        operands, signs = [self._parse_term()], []
        while (sign := self._bit_operator()) is not None:
            signs.append(sign)
            operands.append(self._parse_term())
        for rank in _BIT_OPERATORS:
            joined, between = operands[:1], []
            for sign, operand in zip(signs, operands[1:], strict=True):
                if sign in rank:
                    joined[-1] = self.expression(sign(this=joined[-1], expression=operand))
                else:
                    between.append(sign)
                    joined.append(operand)
            operands, signs = joined, between
        return operands[0]

    def _bit_operator(self) -> type[exp.Binary] | None:
        if self._match_set(self.BITWISE):
            return self.BITWISE[self._prev.token_type]
        if self._match_pair(TokenType.LT, TokenType.LT):
            return exp.BitwiseLeftShift
        return exp.BitwiseRightShift if self._match_pair(TokenType.GT, TokenType.GT) else None


class _DuckDBParser(DuckDBParser):
    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = _only(DuckDBParser.FUNCTION_PARSERS, ("CAST", "TRY_CAST"))
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = _only(DuckDBParser.NO_PAREN_FUNCTION_PARSERS, _WITHOUT_BRACKETS)


class SparkAsWritten(Spark):
    """Reads Spark's SQL. A quote written twice is a quote, as it is since Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer with quotes among the escapes."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']

    Parser = _SparkParser


class DuckDBAsWritten(DuckDB):
    """Reads DuckDB's SQL, to look at what was written for it."""

    Parser = _DuckDBParser


def take_units(tree: exp.Expr) -> None:
    """Make words of the units that functions of time take, which look like columns. Raises SyntaxInvalid."""
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() in _WITH_UNITS and len(call.expressions) == 3:
            unit = call.expressions[0]
            if isinstance(unit, exp.Literal):
                raise SyntaxInvalid(f"{call.name.upper()} takes its unit without quotes.", position_of(call))
            if isinstance(unit, exp.Column) and not unit.table and not unit.this.quoted:
                unit.replace(exp.Var(this=unit.name))
