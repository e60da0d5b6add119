"""Text -> one syntax tree, within limits against hostile texts."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from sql.allowlist import syntax
from sql.allowlist.functions import IN_EVERY_DIALECT
from sql.dialects.clauses import resolve_clauses
from sql.dialects.names import DIALECTS, HIVES, SPARK
from sql.dialects.session_functions import name_session_functions
from sql.errors import (
    EmptyStatement,
    MultipleStatements,
    NotAllowed,
    Position,
    StatementTooDeep,
    StatementTooLong,
    SyntaxInvalid,
    UnknownDialect,
)
from sql.guards import FENCE, RAISE
from sql.nodes import position_at, position_of
from sql.parsers.brackets import put_brackets, put_brackets_around_bits
from sql.parsers.dialects import (
    LIBRARY_DEFECTS,
    READERS,
    name_collations,
    name_sources,
    select_from_named_relations,
    take_units,
)
from sql.parsers.hints import take_engine
from sql.parsers.identifier_clause import put_in_names
from sql.parsers.words import expected, why_refused

MESSAGE_OVERHEAD_BYTES = 256 << 10  # of a call beside its statement, such as a session's configuration
LONGEST_NUMBER = 1_000  # characters; no engine has numbers of more digits
RECURSION_LIMIT = 12_000  # Python frames; the parser takes about a dozen per level of nesting

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
_NUMBER_LETTERS = ("Y", "S", "L", "F", "D", "BD")
_PREDICATES = ("IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN", "EXISTS")
_OPERAND_ENDS = (
    *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET),
    *(TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
)
_AFTER_NAME = (TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT, TokenType.EQ)
_GENERIC_TYPES = ("ARRAY", "LIST", "MAP", "STRUCT")
_NOT_QUERIES = frozenset(
    """
    ALTER ANALYZE ATTACH CALL CHECKPOINT COPY CREATE DELETE DETACH DROP EXECUTE EXPORT GRANT IMPORT INSERT INSTALL
    LOAD MERGE PRAGMA REFRESH RESET REVOKE SET TRUNCATE UPDATE USE VACUUM
    """.split()
)

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns about statements that are refused anyway


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits of a text."""

    statement_bytes: int = 1 << 20
    nesting: int = 200
    """Of brackets and CASE."""
    depth: int = 2_000
    """Of the syntax tree."""
    tokens: int = 100_000
    """A parser takes about 10 us for each."""


USUAL_LIMITS = ParserLimits()


def reader_of(dialect: str) -> Dialect:
    """Return the library's dialect. Raises UnknownDialect."""
    if dialect not in DIALECTS:
        raise UnknownDialect(f"Unknown dialect {dialect}; known are {', '.join(DIALECTS)}.")
    return READERS[dialect]()


def parse(sql: str, dialect: str, limits: ParserLimits, *, of_ours: bool = False) -> tuple[exp.Expr, str | None]:
    """Return the tree of the one query in a text, and the engine that a hint in it names. Raises SqlError.

    A tree of Spark's dialect is checked against the allow-list. A tree of another dialect has to be normalized, written
    as Spark's and parsed again.

    of_ours: the gateway wrote the text, so that it may call the function that raises an error.
    """
    read = reader_of(dialect)
    require_length(sql, limits)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
    try:
        tokens = read.tokenize(sql)
    except TokenError as error:
        raise not_cut_into_words(error, sql) from error
    if not any(token.token_type is not TokenType.SEMICOLON for token in tokens):
        raise EmptyStatement("The statement is empty.")
    if len(tokens) > limits.tokens:
        raise StatementTooLong(f"The statement has more than {limits.tokens:,} words and signs.")
    _check_nesting(sql, tokens, limits.nesting)
    _check_numbers(sql, tokens)
    if dialect == SPARK:
        _check_exclamation_marks(sql, tokens)
        tokens = put_in_names(_numbers_with_letters(tokens))
        _name_hexadecimals(sql, tokens)
    try:
        trees = [tree for tree in read.parser().parse(tokens, sql) if not isinstance(tree, exp.Semicolon | None)]
    except ParseError as error:
        _refuse_other_statements(sql, tokens)
        raise _syntax_invalid(error) from error
    except SqlglotError as error:
        raise SyntaxInvalid(_first_line(error)) from error
    except LIBRARY_DEFECTS as error:
        raise SyntaxInvalid("Syntax error: a function or type has arguments that its dialect does not know.") from error
    _refuse_other_statements(sql, tokens)
    if len(trees) != 1:
        raise MultipleStatements(f"The text has {len(trees)} statements: send one at a time.")
    _check_depth(trees[0], limits.depth)
    resolve_clauses(trees[0], dialect)
    select_from_named_relations(trees[0])
    name_sources(trees[0])
    name_session_functions(trees[0])
    bits, doubtful = put_brackets_around_bits(trees[0]), put_brackets(trees[0])
    if bits is not None and dialect in HIVES:  # there they have other ranks than the parser gives them
        raise NotAllowed(
            "Put brackets around the operands of &, | and ^: dialects rank them differently.", position_of(bits)
        )
    if doubtful is not None:
        message = "Put brackets around a comparison that is compared itself: without, dialects read it differently."
        raise NotAllowed(message, position_of(doubtful))
    engine = take_engine(trees[0])
    if dialect == SPARK:
        take_units(trees[0])
        name_collations(trees[0])
    if of_ours:
        _check_ours(trees[0])
    elif dialect == SPARK:
        syntax.check(trees[0])
    else:
        syntax.refuse_raised_errors(trees[0])
        syntax.check(trees[0], functions=None)
    return trees[0], engine


def _check_ours(tree: exp.Expr) -> None:
    """Check a text of the gateway. Its positions are not those of the client's text."""
    try:
        syntax.check(tree, functions=IN_EVERY_DIALECT | {RAISE, FENCE})
    except NotAllowed as error:
        raise NotAllowed(error.message) from error


def require_length(sql: str, limits: ParserLimits) -> None:
    """Raise SqlError for a text that cannot be recorded: too long, or not Unicode."""
    try:
        size = len(sql.encode())
    except UnicodeEncodeError as error:
        raise SyntaxInvalid("The statement is not valid Unicode.", position_at(sql, error.start)) from error
    if size > limits.statement_bytes:
        raise StatementTooLong(f"The statement is longer than {limits.statement_bytes:,} bytes.")


def _check_nesting(sql: str, tokens: list[Token], limit: int) -> None:
    depth = generic = indexes = 0
    for previous, token in pairwise([None, *tokens]):
        if token is None:
            continue
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _CLOSING:
            depth -= 1
        if token.token_type is TokenType.LT and previous is not None and previous.text.upper() in _GENERIC_TYPES:
            generic += 1
        if token.token_type is TokenType.L_BRACKET:
            indexes += 1
        if max(depth, generic, indexes) > limit:
            where = position_at(sql, token.start)
            raise StatementTooDeep(f"The statement is nested more than {limit} levels deep.", where)


def _check_numbers(sql: str, tokens: list[Token]) -> None:
    """Refuse an exponent without digits, which engines read as a name, and numbers of thousands of digits."""
    for token in tokens:
        if token.token_type is not TokenType.NUMBER:
            continue
        if len(token.text) > LONGEST_NUMBER:
            message = f"Syntax error: a number has at most {LONGEST_NUMBER:,} characters, not {len(token.text):,}."
            raise SyntaxInvalid(message, position_at(sql, token.start))
        if token.text[-1:] in ("e", "E", "+", "-"):
            raise SyntaxInvalid(f"Syntax error: {token.text} is not a number.", position_at(sql, token.start))


def _numbers_with_letters(tokens: list[Token]) -> list[Token]:
    """Join the letter of a number's type to its digits again: 2L is not CAST(2 AS BIGINT) beside a decimal."""
    joined: list[Token] = []
    for token in tokens:
        if token.text.upper() in _NUMBER_LETTERS and len(joined) > 1 and joined[-1].token_type is TokenType.DCOLON:
            number = joined[-2]
            if number.token_type is TokenType.NUMBER and token.start == joined[-1].start == number.start:
                joined.pop()
                number.text += token.text.upper()
                continue
        joined.append(token)
    return joined


def _name_hexadecimals(sql: str, tokens: list[Token]) -> None:
    """Turn 0x1F into a name, as Spark does; its hexadecimal numbers are written X'1F'."""
    for token in tokens:
        if token.token_type is TokenType.HEX_STRING and sql[token.start] == "0":
            token.token_type, token.text = TokenType.VAR, sql[token.start : token.end + 1]


def _check_exclamation_marks(sql: str, tokens: list[Token]) -> None:
    """Refuse an exclamation mark for NOT within a predicate, which Spark removed: 1 ! IN (2), x IS ! NULL."""
    for previous, token, following in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.token_type is not TokenType.NOT or token.text != "!" or previous is None or following is None:
            continue
        negates = following.text.upper() in _PREDICATES and previous.token_type in _OPERAND_ENDS
        if negates or previous.token_type is TokenType.IS:
            message = "Syntax error near '!': write NOT; ! only stands before an expression."
            raise SyntaxInvalid(message, position_at(sql, token.start))


def _check_depth(tree: exp.Expr, limit: int) -> None:
    """Refuse a tree that is deep without brackets, such as thousands of operators in a row."""
    level = [tree]
    for _ in range(limit):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise StatementTooDeep(f"The statement's expressions are more than {limit:,} levels deep.")


def _refuse_other_statements(sql: str, tokens: list[Token]) -> None:
    """Refuse a text that starts with, or has inside brackets, a verb that is not a query's.

    The tree does not show it: ``INSTALL httpfs`` is parsed as a column with an alias, and ``WITH x AS (COPY ...)`` is a
    syntax error. The message has to name the statement.
    """
    previous: Token | None = None
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        starts = previous is None or previous.token_type in (TokenType.L_PAREN, TokenType.SEMICOLON)
        verb = token.text.upper()
        if starts and verb in _NOT_QUERIES and following is not None and _continues(following):
            raise NotAllowed(f"{verb} is not allowed{why_refused(verb)}", position_at(sql, token.start))
        previous = token


def _continues(token: Token) -> bool:
    """Return True if the word before this token may be a statement's verb, not the name of a column or function."""
    return token.token_type not in _AFTER_NAME


def _syntax_invalid(error: ParseError) -> SyntaxInvalid:
    first = error.errors[0] if error.errors else {}
    line, column, highlight = first.get("line"), first.get("col"), first.get("highlight") or ""
    position = Position(line, max(1, column - max(0, len(highlight) - 1))) if line and column else None
    near = f" near '{highlight}'" if highlight else ""
    description = expected(str(first.get("description") or ""))
    return SyntaxInvalid(f"Syntax error{near}: {description}.", position)


def not_cut_into_words(error: TokenError, sql: str) -> SyntaxInvalid:
    """Return the error of a text that the tokenizer cannot read to its end.

    The missing sign and its position are only in the tokenizer's message: ``Missing ' from 2:11``.
    """
    description = str(error.__cause__ or error)
    missing, _, place = description.removeprefix("Missing ").rpartition(" from ")
    start = place.partition(":")[2]
    if not description.startswith("Missing ") or not start.isdecimal() or int(start) > len(sql):
        return SyntaxInvalid(_first_line(error))
    return SyntaxInvalid(
        f"Syntax error: {missing} is missing at the end of what begins here.", position_at(sql, int(start))
    )


def _first_line(error: Exception) -> str:
    return f"Syntax error: {str(error).splitlines()[0]}"
