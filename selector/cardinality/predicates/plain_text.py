"""Fast parser of the predicates that engines print most; the general parser takes half a millisecond for each.

It reads columns, constants and casts, their comparisons, AND, OR and NOT. The tree is the same as that of sqlglot,
which parses all other forms.
"""

from __future__ import annotations

import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

MOST_NESTED = 40  # parentheses, beyond which the general parser reads the text

_TOKEN = re.compile(  # no two ways to read anything, so that it takes linear time
    r"""[ ]*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]+(?:\.[0-9]+)?)(?![\w.])|(?P<text>'(?:[^'\\]|'')*')"""
    r"""|(?P<quoted>"[^"\\]+")|(?P<sign>::|<=|>=|<>|!=|[=<>(),-]))"""
)
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<>": exp.NEQ,
    "!=": exp.NEQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}
_STANDARD_QUOTES = ("duckdb",)  # dialects in which "x" is a name, and '' within a string is a quote


class _OtherForm(Exception):
    """The text has a form that only the general parser reads."""


def read_plain(text: str, dialect: str) -> exp.Expr | None:
    """Return the expression of a text; None for a form that only the general parser reads."""
    try:
        reader = _Reader(text.strip(), dialect)
        expression = reader.disjunction(0)
        reader.take("end")
    except _OtherForm:
        return None
    return expression


class _Reader:
    """Recursive-descent parser of one text."""

    def __init__(self, text: str, dialect: str) -> None:
        self._text = text
        self._dialect = dialect
        self._keywords = _keywords(dialect)
        self._place = 0
        self._advance()

    def _advance(self) -> None:
        if self._place == len(self._text):
            self._kind, self._token, self._upper = "end", "", ""
            return
        match = _TOKEN.match(self._text, self._place)
        if match is None:
            raise _OtherForm
        self._place = match.end()
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._upper = self._token.upper() if self._kind == "word" else self._token if self._kind == "sign" else ""

    def take(self, kind: str) -> str:
        """Return the current token and advance; raise _OtherForm if it is of another kind."""
        if self._kind != kind:
            raise _OtherForm
        token = self._token
        self._advance()
        return token

    def _skip(self, token: str) -> bool:
        if self._upper != token:
            return False
        self._advance()
        return True

    def _need(self, token: str) -> None:
        if not self._skip(token):
            raise _OtherForm

    def disjunction(self, depth: int) -> exp.Expr:
        """Read a disjunction."""
        expression = self._conjunction(depth)
        while self._skip("OR"):
            expression = exp.Or(this=expression, expression=self._conjunction(depth))
        return expression

    def _conjunction(self, depth: int) -> exp.Expr:
        expression = self._negation(depth)
        while self._skip("AND"):
            expression = exp.And(this=expression, expression=self._negation(depth))
        return expression

    def _negation(self, depth: int) -> exp.Expr:
        if depth > MOST_NESTED:
            raise _OtherForm
        if self._skip("NOT"):
            return exp.Not(this=self._negation(depth + 1))
        if self._upper == "(":
            self._advance()
            inner = self.disjunction(depth + 1)
            self._need(")")
            expression: exp.Expr = exp.Paren(this=inner)
            return self._is_null(expression) if self._upper == "IS" else expression
        return self._comparison()

    def _comparison(self) -> exp.Expr:
        lhs = self._value()
        if self._upper == "IS":
            return self._is_null(lhs)
        if self._skip("IN"):
            return self._among(lhs)
        if self._skip("BETWEEN"):
            low = self._value()
            self._need("AND")
            return exp.Between(this=lhs, low=low, high=self._value())
        kind = _COMPARISONS.get(self._upper)
        if kind is None:
            if isinstance(lhs, exp.Column) and (self._kind == "end" or self._upper in (")", "AND", "OR")):
                return lhs  # a boolean
            raise _OtherForm
        self._advance()
        return kind(this=lhs, expression=self._value())

    def _is_null(self, value: exp.Expr) -> exp.Expr:
        self._need("IS")
        negated = self._skip("NOT")
        self._need("NULL")
        expression = exp.Is(this=value, expression=exp.Null())
        return exp.Not(this=expression) if negated else expression

    def _among(self, value: exp.Expr) -> exp.Expr:
        self._need("(")
        items = [self._value()]
        while self._skip(","):
            items.append(self._value())
        self._need(")")
        return exp.In(this=value, expressions=items)

    def _value(self) -> exp.Expr:
        expression = self._simple_value()
        while self._skip("::"):
            expression = self._cast(expression, "NULL::{}")
        return expression

    def _simple_value(self) -> exp.Expr:
        match self._kind:
            case "number":
                return exp.Literal.number(self.take("number"))
            case "text" if "''" not in self._token[1:-1] or self._dialect in _STANDARD_QUOTES:
                return exp.Literal.string(self.take("text")[1:-1].replace("''", "'"))
            case "quoted" if self._dialect in _STANDARD_QUOTES:
                return exp.Column(this=exp.Identifier(this=self.take("quoted")[1:-1], quoted=True))
            case "sign" if self._skip("-"):
                return exp.Neg(this=exp.Literal.number(self.take("number")))
            case "word" if self._skip("NULL"):
                return exp.Null()
            case "word" if self._upper in ("TRUE", "FALSE"):
                return exp.Boolean(this=self.take("word").upper() == "TRUE")
            case "word" if self._skip("CAST"):
                self._need("(")
                inner = self._value()
                self._need("AS")
                cast = self._cast(inner, "CAST(NULL AS {})")
                self._need(")")
                return cast
            case "word" if self._upper not in self._keywords or _is_name(self._upper, self._dialect):
                return exp.Column(this=exp.Identifier(this=self.take("word"), quoted=False))
        raise _OtherForm

    def _cast(self, value: exp.Expr, form: str) -> exp.Expr:
        name = self.take("word").upper()
        if self._skip("("):
            digits = [self.take("number")]
            while self._skip(","):
                digits.append(self.take("number"))
            self._need(")")
            name = f"{name}({','.join(digits)})"
        pattern = _cast_of(form.format(name), self._dialect)
        if pattern is None or (self._kind == "word" and self._upper not in ("AND", "OR", "IS", "IN")):
            raise _OtherForm  # a type of several words, perhaps
        return type(pattern)(**{**pattern.args, "this": value, "to": pattern.args["to"].copy()})


@lru_cache(maxsize=256)
def _cast_of(text: str, dialect: str) -> exp.Expr | None:
    """Return a cast as the general parser reads it; None for an unknown type."""
    try:
        expression = sqlglot.parse_one(text, read=dialect)
    except SqlglotError:
        return None
    return expression if isinstance(expression, exp.Cast) and isinstance(expression.args["to"], exp.DataType) else None


@lru_cache(maxsize=1024)
def _is_name(keyword: str, dialect: str) -> bool:
    """Return whether the general parser reads a keyword as a column where only a name is possible."""
    column = exp.Column(this=exp.Identifier(this=keyword, quoted=False))
    try:
        expression = sqlglot.parse_one(f"({keyword} = 1) AND 1 = {keyword} AND {keyword} IS NULL", read=dialect)
    except SqlglotError:
        return False
    lhs = exp.And(
        this=exp.Paren(this=exp.EQ(this=column, expression=exp.Literal.number(1))),
        expression=exp.EQ(this=exp.Literal.number(1), expression=column.copy()),
    )
    return expression == exp.And(this=lhs, expression=exp.Is(this=column.copy(), expression=exp.Null()))


@lru_cache(maxsize=16)
def _keywords(dialect: str) -> frozenset[str]:
    """Return the keywords of a dialect, in upper case."""
    keywords = Dialect.get_or_raise(dialect).tokenizer_class.KEYWORDS
    return frozenset(part for keyword in keywords for part in keyword.upper().split())
