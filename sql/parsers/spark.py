"""Parser of Spark's SQL: the library's, with the grammar of Spark 4 where the library's differs from it.

Functions stay names with arguments, as the library's own nodes would be written as other functions. Each override names
the rule of Spark's grammar (``SqlBaseParser.g4``) that it follows. ``tests/sql/parsers/test_spark.py`` compares the
results of the client's text and of ours on a real Spark.

It is long because the library's grammar differs in many small rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from sql.nodes import PARTS
from sql.parsers.pipes import Piped

Parsers = dict[str, Callable[..., Any]]

WITH_WORDS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "OVERLAY")
WITHOUT_BRACKETS = ("ANY", "CASE", "IF")
TYPED = "typed"
"""Key of a node's ``meta``: a cast that was a typed literal, such as DATE '2020-01-01'."""

_WITH_ANY = (TokenType.GEOMETRY, TokenType.GEOGRAPHY)
SPELLED = "spelled"
"""Key of a node's ``meta``: written name of the function, where the library has one node for several."""
COLUMN_NAME = "column name"
"""Key of the ``meta`` of a call that replaces other syntax: name that Spark gives its column."""
WITHIN = "within"
"""Key of the ``meta`` of a NOT within its predicate: ``x IS NOT NULL``."""
MOST_LEVELS = "most levels"
"""Key of the ``meta`` of a common table expression's alias: number after MAX RECURSION LEVEL."""
OPERATOR = "operator"
"""Key of a node's ``meta``: a function that was written as an operator."""

_MAY_HAVE_WORDS = ("POSITION", "SUBSTR", "SUBSTRING", "TRIM", "OVERLAY")
_WORDS_BETWEEN = frozenset({"FROM", "FOR", "IN", "PLACING", "BOTH", "LEADING", "TRAILING"})
_BIT_OPERATORS = (  # by rank, the closest first
    (exp.BitwiseLeftShift, exp.BitwiseRightShift, "unsigned"),
    (exp.BitwiseAnd,),
    (exp.BitwiseXor,),
    (exp.BitwiseOr,),
)
_SHIFTS = ((">>>", "unsigned"), (">>", exp.BitwiseRightShift), ("<<", exp.BitwiseLeftShift))
_TYPED_LITERALS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME"})
_UNITS = frozenset(
    "DAY DAYS HOUR HOURS MICROSECOND MICROSECONDS MILLISECOND MILLISECONDS MINUTE MINUTES MONTH MONTHS SECOND SECONDS"
    " WEEK WEEKS YEAR YEARS".split()
)
_AFTER_NAME = frozenset({TokenType.COMMA, TokenType.FROM, TokenType.DOT, TokenType.ALIAS, TokenType.R_PAREN})
_BEFORE_QUANTIFIER = frozenset(  # LIMIT ALL, GROUP BY ALL, UNION ALL, IS NOT DISTINCT FROM
    {
        *(TokenType.LIMIT, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.UNION, TokenType.INTERSECT),
        *(TokenType.EXCEPT, TokenType.IS, TokenType.NOT),
    }
)
_ORGANIZING = ("ORDER BY", "SORT BY", "CLUSTER BY", "DISTRIBUTE BY", "LIMIT", "OFFSET", "WINDOW")
_PIPED_JOINS = frozenset("JOIN INNER CROSS LEFT RIGHT FULL NATURAL SEMI ANTI".split())
_SET_OPERATIONS = frozenset("UNION EXCEPT MINUS INTERSECT".split())


def only(parsers: Parsers, names: tuple[str, ...]) -> Parsers:
    """Return the parsers of these names."""
    return {name: parser for name, parser in parsers.items() if name in names}


def worded(parser: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a parser of a function's arguments that keeps the written name if there are no words between them."""

    def parse(self: Spark4Parser) -> Any:
        spelled = None if self.has_words_between() else self._tokens[self._index - 2].text.lower()
        node = parser(self)
        if spelled is not None:
            node.meta[SPELLED] = spelled
        return node

    return parse


SNAPSHOT_PHRASES: Mapping[tuple[str, ...], str] = {
    ("FOR", "SYSTEM_VERSION"): "VERSION",
    ("SYSTEM_VERSION", "AS", "OF"): "VERSION",
    ("SYSTEM_TIME", "AS", "OF"): "TIMESTAMP",
}
"""Words before a snapshot of a table, beside those that the library knows."""


class Spark4Parser(SparkParser):
    """Parser of Spark's SQL."""

    FUNCTIONS: ClassVar[Parsers] = {}
    FUNCTION_PARSERS: ClassVar[Parsers] = {
        name: worded(parser) if name in _MAY_HAVE_WORDS else parser
        for name, parser in only(SparkParser.FUNCTION_PARSERS, WITH_WORDS).items()
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[Parsers] = only(SparkParser.NO_PAREN_FUNCTION_PARSERS, WITHOUT_BRACKETS)
    VERSION_PHRASES: ClassVar = {**SparkParser.VERSION_PHRASES, **SNAPSHOT_PHRASES}
    NO_PAREN_FUNCTIONS: ClassVar = {}  # current_date without brackets is a column, if there is one of that name
    TERM: ClassVar = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}
    ARRAY_CONSTRUCTORS: ClassVar = {}  # array[0] is an element of a column of that name
    SUPPORTS_TABLE_QUERY: ClassVar = True
    COLON_IS_VARIANT_EXTRACT: ClassVar = True
    _worded: set[int]
    UNARY_PARSERS: ClassVar = {
        **SparkParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: exp.Anonymous(this="positive", expressions=[self._parse_unary()]),
        TokenType.DASH: lambda self: self._parse_minus(),
    }

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Parse tokens, with keywords that are used as names turned into names.

        WINDOW is a name or a function unless it begins the clause WINDOW w AS (...); ALL and DISTINCT are names where
        no expression follows them (``setQuantifier?``).
        """
        for previous, token, following, after in zip(
            [None, *raw_tokens], raw_tokens, [*raw_tokens[1:], None], [*raw_tokens[2:], None, None], strict=False
        ):
            if token.token_type is TokenType.WINDOW:
                is_name = after is None or after.token_type is not TokenType.ALIAS
            elif token.token_type in (TokenType.ALL, TokenType.DISTINCT):
                is_name = previous is not None and previous.token_type not in _BEFORE_QUANTIFIER
                is_name = is_name and (following is None or following.token_type in _AFTER_NAME)
            else:
                continue
            if is_name:
                token.token_type = TokenType.VAR
        for kind, opening, token in zip(raw_tokens, raw_tokens[1:], raw_tokens[2:], strict=False):
            is_parameter = kind.token_type in _WITH_ANY and opening.token_type is TokenType.L_PAREN
            if is_parameter and token.token_type is TokenType.ANY:
                token.token_type = TokenType.IDENTIFIER  # GEOMETRY(ANY)
        self._find_worded(raw_tokens)
        return super().parse(raw_tokens, sql)

    def has_words_between(self) -> bool:
        """Return True if the arguments that begin here have words between them: SUBSTRING(x FROM 1 FOR 2)."""
        return self._tokens[self._index - 1].start in self._worded

    def _find_worded(self, tokens: Sequence[Token]) -> None:
        """Collect the starts of brackets with words between their arguments, in one pass."""
        self._worded = set()
        opened: list[int] = []
        for token in tokens:
            if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
                opened.append(token.start)
            elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
                if opened:
                    opened.pop()
            elif opened and token.token_type is not TokenType.STRING and token.text.upper() in _WORDS_BETWEEN:
                self._worded.add(opened[-1])

    # ------------------------------------------------------------------ operators

    def _parse_bitwise(self) -> exp.Expr | None:
        operands, signs = [self._parse_term()], []
        while (sign := self._bit_operator()) is not None:
            signs.append(sign)
            operands.append(self._parse_term())
            if operands[-1] is None:
                self.raise_error("Expected an expression after the operator")
        for rank in _BIT_OPERATORS:
            joined, between = operands[:1], []
            for sign, operand in zip(signs, operands[1:], strict=True):
                if sign not in rank:
                    between.append(sign)
                    joined.append(operand)
                elif sign == "unsigned":
                    shift = exp.Anonymous(this="shiftrightunsigned", expressions=[joined[-1], operand])
                    shift.meta[OPERATOR] = True
                    joined[-1] = shift
                else:
                    joined[-1] = self.expression(sign(this=joined[-1], expression=operand))
            operands, signs = joined, between
        return operands[0]

    def _bit_operator(self) -> Any:
        """Return the class of the operator at this place; shifts have no blanks between their signs."""
        if self._match_set(self.BITWISE):
            return self.BITWISE[self._prev.token_type]
        if self._curr.token_type in (TokenType.LT, TokenType.GT):
            for signs, operator in _SHIFTS:
                if self._adjacent(signs):
                    self._advance(len(signs))
                    return operator
        return None

    def _adjacent(self, signs: str) -> bool:
        """Return True if the next tokens are these signs without blanks between them."""
        tokens = self._tokens[self._index : self._index + len(signs)]
        return "".join(token.text for token in tokens) == signs and all(
            one.end + 1 == other.start for one, other in pairwise(tokens)
        )

    def _parse_minus(self) -> exp.Expr | None:
        """Read ``number: MINUS? INTEGER_VALUE``: the sign is part of a number, so that -1 :: STRING casts -1."""
        if self._curr.token_type is not TokenType.NUMBER:
            return self.expression(exp.Neg(this=self._parse_unary()))
        return self._parse_column_ops(self.expression(exp.Neg(this=self._parse_primary())))

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        """Read ``IS NULL``, a predicate: no :: may follow it."""
        predicate = super()._parse_is(this)
        if isinstance(predicate, exp.Cast | exp.TryCast | exp.Bracket | exp.Dot):
            self.raise_error("Expected an operator or the end of the expression")
        if isinstance(predicate, exp.Not):
            predicate.meta[WITHIN] = True
        return predicate

    # ------------------------------------------------------------------ literals

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """Read ``literalType stringLit``, a primary expression, to which :: and [] apply as a whole."""
        is_word = self._curr.token_type is not TokenType.STRING and self._next.token_type is TokenType.STRING
        word = self._curr.text.upper() if is_word else ""
        if word == "X":
            self._advance(2)
            return self._parse_column_ops(exp.HexString(this=self._prev.text.upper()))
        if word in _TYPED_LITERALS:
            self._advance()
            literal = exp.Cast(this=self._parse_primary(), to=exp.DataType.from_str(word, dialect=self.dialect))
            literal.meta[TYPED] = True
            return self._parse_column_ops(literal)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_primary(self) -> exp.Expr | None:
        """Read adjacent strings as one literal."""
        primary = super()._parse_primary()
        if isinstance(primary, exp.Concat):
            return exp.Literal.string("".join(part.name for part in primary.expressions))
        return primary

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """Read ``INTERVAL (multiUnitsInterval | unitToUnitInterval)``, of numbers and strings with their units."""
        start = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        if self._curr.token_type is TokenType.STRING and self._next.text.upper() not in _UNITS:
            return self.expression(self._typed_interval(self._advanced().text))
        parts: list[tuple[str, str]] = []
        while (amount := self._interval_amount()) is not None:
            unit = self._advanced().text.upper()
            parts.append((amount, unit))
            if len(parts) == 1 and self._match_text_seq("TO"):
                span = exp.IntervalSpan(this=exp.var(unit), expression=exp.var(self._advanced().text.upper()))
                return self.expression(exp.Interval(this=exp.Literal.string(amount), unit=span))
        if not parts:
            self._retreat(start)
            return None
        if len(parts) == 1:
            return self.expression(exp.Interval(this=exp.Literal.string(parts[0][0]), unit=exp.var(parts[0][1])))
        text = " ".join(f"{amount.strip()} {unit.lower()}" for amount, unit in parts)
        return self.expression(exp.Interval(this=exp.Literal.string(text)))

    def _typed_interval(self, text: str) -> exp.Interval:
        """Return an interval in one string; one of a single unit is the same as with the unit outside of the string."""
        words = text.split()
        if len(words) == 2 and words[1].upper() in _UNITS and words[0].lstrip("+-").replace(".", "", 1).isdecimal():
            fraction = True if "." in words[0] else None
            unit = exp.var(words[1].upper())
            return exp.Interval(this=exp.Literal.string(words[0]), unit=unit, fraction_in_string=fraction)
        return exp.Interval(this=exp.Literal.string(text))

    def _interval_amount(self) -> str | None:
        """Return a number or string before a unit, with its sign; None: there is none."""
        start = self._index
        sign = ""
        if self._match_set((TokenType.DASH, TokenType.PLUS)):
            sign = "-" if self._prev.token_type is TokenType.DASH else ""
        if self._match_set((TokenType.NUMBER, TokenType.STRING)):
            text = self._prev.text
            if self._curr.text.upper() in _UNITS:
                return text if not sign else text.strip()[1:] if text.strip().startswith("-") else sign + text.strip()
        self._retreat(start)
        return None

    def _advanced(self) -> Token:
        self._advance()
        return self._prev

    def _parse_extract(self) -> exp.Extract | exp.Anonymous:
        """Read EXTRACT(part FROM time) or EXTRACT('part', time); the part keeps its spelling."""
        spelled = self._curr.text
        node = super()._parse_extract()
        if isinstance(node.this, exp.Literal) and node.name.isidentifier():
            node.set("this", exp.var(node.name.upper()))
        if isinstance(node.this, exp.Var) and node.this.name == spelled.upper():
            node.meta[SPELLED] = spelled
        return node

    # ------------------------------------------------------------------ names

    def _parse_colon_as_variant_extract(self, this: exp.Expr | None) -> exp.Expr | None:
        """Read a path into a VARIANT, ``v:a.b[0]``, as a call of ``variant_get``; its last name is the column's."""
        while this is not None and self._match(TokenType.COLON):
            path, name = self._parse_path()
            this = exp.Anonymous(this="variant_get", expressions=[this, exp.Literal.string(f"${path}")])
            this.meta[COLUMN_NAME] = name
            this = self._parse_column_ops(this)
        return this

    def _parse_path(self) -> tuple[str, str]:
        """Read the names and indexes of a path. Returns it in the form of ``variant_get``, and its last name."""
        path = name = ""
        is_first = True
        while is_first or self._match_set((TokenType.DOT, TokenType.L_BRACKET), advance=False):
            if self._match(TokenType.L_BRACKET):
                place = self._parse_primary()
                if not isinstance(place, exp.Literal) or not self._match(TokenType.R_BRACKET):
                    self.raise_error("Expected a number or a text in the brackets of a path")
                    break
                name = place.name
                quote = ('"' if "'" in name else "'") if place.is_string else ""
                path += f"[{quote}{name}{quote}]"
            else:
                if not is_first:
                    self._advance()
                key = self._parse_id_var(any_token=True)
                if key is None:
                    self.raise_error("Expected a name in a path")
                    break
                name = key.name
                path += f".{name}"
            is_first = False
        return path, name

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        """Return None, as a string is not a name."""
        return None

    def _parse_id_var(self, any_token: bool = True, tokens: Any = None) -> exp.Expr | None:
        if any_token and self._curr.token_type is TokenType.STRING:
            return None
        return super()._parse_id_var(any_token, tokens)

    # ------------------------------------------------------------------ queries

    def _parse_table_parts(self, *arguments: Any, **options: Any) -> exp.Table | exp.Dot | None:
        """Read a name of a table; of more than three parts, all between the first and the last are its database's."""
        table = super()._parse_table_parts(*arguments, **options)
        if isinstance(table, exp.Table) and isinstance(table.this, exp.Dot):
            _, *database, name = parts = table.parts
            if all(isinstance(part, exp.Identifier) for part in parts):
                table.meta[PARTS] = [part.name for part in parts]
                table.set("db", exp.to_identifier(".".join(part.name for part in database), quoted=True))
                table.set("this", name)
        return table

    def _parse_csv(self, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA) -> list[Any]:
        """Read a list with an item after each comma."""
        if parse_method not in (self._parse_expression, self._parse_disjunction, self._parse_ordered):
            return super()._parse_csv(parse_method, sep)
        item = parse_method()
        items = [] if item is None else [item]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.raise_error("Expected an expression after the comma")
            items.append(item)
        return items

    def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
        """Read ``ctes`` with different names."""
        clause = super()._parse_with(skip_with_token)
        names = Counter(expression.alias.lower() for expression in clause.expressions) if clause else Counter()
        for name, count in names.items():
            if count > 1:
                self.raise_error(f"Two common table expressions of one WITH have the name {name}")
        return clause

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        """Read ``namedQuery: name columnAliases? (MAX RECURSION LEVEL INTEGER_VALUE)?`` where a WITH names a query."""
        alias = super()._parse_table_alias(alias_tokens)
        is_of_cte = alias_tokens is self.ID_VAR_TOKENS  # the library parses no other alias with them
        if alias is not None and is_of_cte and self._match_text_seq("MAX", "RECURSION", "LEVEL"):
            number = self._parse_number()
            level = number.name if isinstance(number, exp.Literal) else ""
            if not level.isdecimal():
                self.raise_error("Expected a whole number after MAX RECURSION LEVEL")
            alias.meta[MOST_LEVELS] = int(level)
        return alias

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        """Read a query; pipe operators may also follow VALUES."""
        query = super()._parse_select(nested, table, parse_subquery_alias, parse_set_operation, consume_pipe)
        if consume_pipe and isinstance(query, exp.Values) and self._match(TokenType.PIPE_GT, advance=False):
            piped: exp.Expr = self._parse_pipe_syntax_query(query)
            return piped
        return query

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        """Read ``inlineTable: VALUES expression (COMMA expression)* tableAlias``: rows have no aliases."""
        if self._curr.token_type is TokenType.L_PAREN:
            return super()._parse_value(values)
        row = self._parse_disjunction()
        return None if row is None else self.expression(exp.Tuple(expressions=[row]))

    # ------------------------------------------------------------------ pipes

    def _parse_pipe_syntax_query(self, query: exp.Expr) -> Any:
        """Read ``left=queryTerm OPERATOR_PIPE operatorPipeRightSide``: each operator reads the query before it."""
        if isinstance(query, exp.Values) or (isinstance(query, exp.Subquery) and query.alias):
            query = exp.select("*").from_(query, copy=False)
        clauses = query.args.get("with_")
        if clauses is not None:
            clauses.pop()
        while self._match(TokenType.PIPE_GT):
            query = self._pipe_operator(query)
        if clauses is not None:
            query.set("with_", clauses)
        return query

    def _pipe_operator(self, query: exp.Expr) -> Any:
        word = self._curr.text.upper()
        source = query if isinstance(query, exp.Subquery) and not query.alias else exp.Subquery(this=query)
        if word in _SET_OPERATIONS:
            return self._parse_set_operations(source)
        piped = Piped(operator=word, expressions=[exp.Star()], from_=exp.From(this=source))
        if word == "SELECT":
            self._advance()
            piped.set("hint", self._parse_hint())
            if self._match(TokenType.DISTINCT):
                piped.set("distinct", exp.Distinct())
            else:
                self._match(TokenType.ALL)
            piped.set("expressions", self._parse_expressions())
            piped.set("windows", self._parse_window_clause())
        elif self._match_text_seq("EXTEND"):
            piped.set("expressions", [exp.Star(), *self._parse_expressions()])
        elif self._match_text_seq("AGGREGATE"):
            keys, aggregates = [], []
            if self._curr.token_type is not TokenType.GROUP_BY:
                aggregates = self._parse_expressions()
            if self._match(TokenType.GROUP_BY):
                keys = self._parse_expressions()
            if not keys and not aggregates:
                self.raise_error("Expected aggregates, or GROUP BY with its keys, after AGGREGATE")
            piped.set("expressions", [*keys, *aggregates])
            piped.set("keys", len(keys))
        elif word == "SET" and self._match(TokenType.SET):
            piped.set("expressions", [exp.Star(replace=self._parse_csv(self._pipe_assignment))])
        elif word == "DROP" and self._match(TokenType.DROP):
            piped.set("expressions", [exp.Star(except_=self._parse_csv(self._parse_id_var))])
        elif word == "AS" and self._match(TokenType.ALIAS):
            name = self._parse_id_var(any_token=False)
            if name is None:
                self.raise_error("Expected a name after AS")
            piped.set("from_", exp.From(this=exp.Subquery(this=query, alias=exp.TableAlias(this=name))))
        elif word == "WHERE":
            piped.set("where", self._parse_where())
        elif word in ("PIVOT", "UNPIVOT"):
            source.set("pivots", self._parse_pivots())
        elif word == "TABLESAMPLE":
            source.set("sample", self._parse_table_sample())
        elif word in _PIPED_JOINS and (join := self._parse_join()) is not None:
            piped.set("operator", "JOIN")
            piped.set("joins", [join])
        else:
            self._pipe_organization(piped, word)
        return piped

    def _pipe_organization(self, piped: Piped, word: str) -> None:
        """Read ``queryOrganization``: ORDER BY, SORT BY and others, LIMIT and OFFSET."""
        piped.set("operator", "ORDER BY")
        start = self._index
        while self._curr.text.upper() in _ORGANIZING:
            read: Callable[[Any], Any] = self.QUERY_MODIFIER_PARSERS[self._curr.token_type]
            key, clause = read(self)
            if clause is None or piped.args.get(key):
                break
            piped.set(key, clause)
        if self._index == start:
            self.raise_error(f"Unknown pipe operator {word}")

    def _pipe_assignment(self) -> exp.Expr | None:
        name = self._parse_id_var()
        if name is None or not self._match(TokenType.EQ):
            self.raise_error("Expected a name and = after SET")
        return self.expression(exp.Alias(this=self._parse_disjunction(), alias=name))
