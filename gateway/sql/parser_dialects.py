"""What texts are read with: Spark's, Hive's and Impala's SQL with its functions as they were written.

The parser knows most functions and turns them into nodes of its own, which it writes as something that should be the
same: LOG10(x) becomes LOG(10, x), which Spark computes less exactly. Here a function is a name with arguments. Only
those with words between their arguments (CAST, EXTRACT, TRIM, ...) have nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.hive import Hive
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parser import Parser
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.hive import HiveParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.parsers.trino import TrinoParser
from sqlglot.tokenizer_core import TokenType

from gateway.errors import SyntaxInvalid
from gateway.sql.nodes import find_all, position_of

LIBRARY_DEFECTS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What the library's parser and writers raise over what their authors did not think of, such as map(1) in Hive."""

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
    ARRAY_CONSTRUCTORS: ClassVar = {}  # array[0] is a place in a column of that name

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


class _SparkGenerator(SparkGenerator):
    """Spark's writer; common table expressions stay where they are, of whatever name others are. A TIME stays one."""

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TYPE_MAPPING: ClassVar = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}


class SparkAsWritten(Spark):
    """Reads and writes Spark's SQL. A quote written twice is a quote, as it is since Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer with quotes among the escapes."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']

    Parser = _SparkParser
    Generator = _SparkGenerator


class DuckDBAsWritten(DuckDB):
    """Reads DuckDB's SQL, to look at what was written for it."""

    Parser = _DuckDBParser


class _HiveParser(HiveParser):
    """Hive's parser; CHAR(n) and VARCHAR(n) keep their lengths."""

    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = _only(HiveParser.FUNCTION_PARSERS, _WITH_WORDS)
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = _only(HiveParser.NO_PAREN_FUNCTION_PARSERS, _WITHOUT_BRACKETS)
    ARRAY_CONSTRUCTORS: ClassVar = {}

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        return Parser._parse_types(self, check_func, schema, allow_identifiers, with_collation)


class _ImpalaParser(_HiveParser):
    """Impala's parser; EXTRACT also takes a time and the name of a part."""

    OPERATION_MODIFIERS: ClassVar[set[str]] = {"STRAIGHT_JOIN"}

    def _parse_extract(self) -> exp.Extract | exp.Anonymous:
        if self._next is not None and self._next.token_type is TokenType.FROM:
            return super()._parse_extract()
        arguments = self._parse_csv(self._parse_disjunction)
        return exp.Anonymous(this="date_part", expressions=arguments[::-1])


class HiveText(Hive):
    """Reads Hive's SQL, with Spark's literals of bytes."""

    class Tokenizer(Hive.Tokenizer):
        """The tokenizer with literals of bytes."""

        HEX_STRINGS: ClassVar = Spark.Tokenizer.HEX_STRINGS

    Parser = _HiveParser


class ImpalaText(HiveText):
    """Reads Impala's SQL, in which NULL is larger than all else."""

    NULL_ORDERING = "nulls_are_large"
    Parser = _ImpalaParser


class _QuotedNames(Parser):
    """A parser to which a name in quotes is a name, never the word ARRAY before a list."""

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        name = this.this if isinstance(this, exp.Column) else this
        if not isinstance(name, exp.Identifier) or not name.quoted or name.name.upper() not in self.ARRAY_CONSTRUCTORS:
            return super()._parse_bracket(this)
        spelled = name.name
        name.set("this", f"{spelled}\0")
        found = super()._parse_bracket(this)
        name.set("this", spelled)
        return found


class _TrinoParser(_QuotedNames, TrinoParser):
    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}


class _OwnDuckDBParser(_QuotedNames, DuckDBParser):
    pass


class _AnsiParser(_QuotedNames):
    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}


class TrinoText(Trino):
    """Reads Trino's SQL."""

    Parser = _TrinoParser


class DuckDBText(DuckDB):
    """Reads DuckDB's SQL, with its functions as the parser knows them."""

    Parser = _OwnDuckDBParser


class AnsiText(Dialect):
    """Reads standard SQL."""

    Parser = _AnsiParser


READERS: Mapping[str, type[Dialect]] = {
    "spark": SparkAsWritten,
    "hive": HiveText,
    "impala": ImpalaText,
    "duckdb": DuckDBText,
    "trino": TrinoText,
    "ansi": AnsiText,
}
"""What reads a statement, by the dialect as clients name it."""


def take_units(tree: exp.Expr) -> None:
    """Make words of the units that functions of time take, which look like columns. Raises SyntaxInvalid."""
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() in _WITH_UNITS and len(call.expressions) == 3:
            unit = call.expressions[0]
            if isinstance(unit, exp.Literal):
                raise SyntaxInvalid(f"{call.name.upper()} takes its unit without quotes.", position_of(call))
            if isinstance(unit, exp.Column) and not unit.table and not unit.this.quoted:
                unit.replace(exp.Var(this=unit.name))
