"""Text -> one syntax tree, within limits that keep a hostile text from hurting anybody."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from gateway.errors import (
    EmptyStatement,
    MultipleStatements,
    NotAllowed,
    StatementTooDeep,
    StatementTooLong,
    SyntaxInvalid,
    UnknownDialect,
)
from gateway.sql import allowlist
from gateway.sql.brackets import put_brackets, put_brackets_around_bits
from gateway.sql.dialects.clauses import settle_clauses
from gateway.sql.dialects.names import DIALECTS, SPARK
from gateway.sql.dialects.session_functions import name_session_functions
from gateway.sql.hints import take_engine
from gateway.sql.nodes import position_at, position_of
from gateway.sql.parser_dialects import LIBRARY_DEFECTS, READERS, take_units
from metastore.records import Position

_OTHER_RANKS = ("hive", "impala")  # of operators of bits, than the parser has
MESSAGE_OVERHEAD_BYTES = 256 << 10  # what a call may hold beside its statement, such as a session's configuration
LONGEST_NUMBER = 1_000  # characters; no engine has a number of more digits than that
RECURSION_LIMIT = 12_000  # Python frames; the parser takes about a dozen per level of nesting

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
_NUMBER_LETTERS = ("Y", "S", "L", "F", "D", "BD")
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
    """statement_bytes: longest text; nesting: deepest level of brackets and CASE; depth: of the syntax tree.

    tokens: most words and signs; a parser takes about 10 us for each.
    """

    statement_bytes: int = 1 << 20
    nesting: int = 200
    depth: int = 2_000
    tokens: int = 100_000


USUAL_LIMITS = ParserLimits()


def reader_of(dialect: str) -> Dialect:
    """Return what reads texts of a dialect that is one of DIALECTS."""
    return READERS[dialect]()


def parse(sql: str, dialect: str, limits: ParserLimits, *, of_ours: bool = False) -> tuple[exp.Expr, str | None]:
    """Return the tree of the one query in a text, and the engine that a hint in it asks for.

    In a tree of Spark's, functions are names with arguments, and all of it is on the allow-list. That of another
    dialect is as its parser sees it; it is to be written as Spark's and parsed again. Raises SqlError with what is
    wrong and where.

    of_ours: the text was written here, and may hold what stands for a division whose kind is settled later.
    """
    if dialect not in DIALECTS:
        raise UnknownDialect(f"Unknown dialect {dialect}; known are {', '.join(DIALECTS)}.")
    require_length(sql, limits)
    read = reader_of(dialect)
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
        tokens = _numbers_with_letters(tokens)
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
        raise MultipleStatements(f"One statement at a time; this text holds {len(trees)}.")
    _check_depth(trees[0], limits.depth)
    settle_clauses(trees[0], dialect)
    name_session_functions(trees[0])
    bits, doubtful = put_brackets_around_bits(trees[0]), put_brackets(trees[0])
    if bits is not None and dialect in _OTHER_RANKS:
        raise NotAllowed(
            "Put brackets around the operands of &, | and ^: dialects rank them differently.", position_of(bits)
        )
    if doubtful is not None:
        message = "Put brackets around a comparison that is compared itself: dialects read it differently without."
        raise NotAllowed(message, position_of(doubtful))
    engine = take_engine(trees[0])
    if dialect == SPARK:
        take_units(trees[0])
    if of_ours:
        _check_ours(trees[0])
    elif dialect == SPARK:
        allowlist.check(trees[0])
    else:
        allowlist.refuse_marks(trees[0])
        allowlist.check(trees[0], functions=None)
    return trees[0], engine


def _check_ours(tree: exp.Expr) -> None:
    """Check a text that was written here. Its places are not those of the client's text."""
    try:
        allowlist.check(tree, functions=allowlist.FUNCTIONS | allowlist.MARKS)
    except NotAllowed as error:
        raise NotAllowed(error.message) from error


def require_length(sql: str, limits: ParserLimits) -> None:
    """Raise SqlError for a text that is not even to be kept: too long, or no Unicode."""
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
    """Refuse an exponent without digits, which engines take for a name, and numbers of thousands of digits."""
    for token in tokens:
        if token.token_type is not TokenType.NUMBER:
            continue
        if len(token.text) > LONGEST_NUMBER:
            message = f"Syntax error: a number has at most {LONGEST_NUMBER:,} characters, not {len(token.text):,}."
            raise SyntaxInvalid(message, position_at(sql, token.start))
        if token.text[-1:] in ("e", "E", "+", "-"):
            raise SyntaxInvalid(f"Syntax error: {token.text} is no number.", position_at(sql, token.start))


def _numbers_with_letters(tokens: list[Token]) -> list[Token]:
    """Put the letter of a number's type back to its digits: 2L is not CAST(2 AS BIGINT) beside a decimal."""
    kept: list[Token] = []
    for token in tokens:
        if token.text.upper() in _NUMBER_LETTERS and len(kept) > 1 and kept[-1].token_type is TokenType.DCOLON:
            number = kept[-2]
            if number.token_type is TokenType.NUMBER and token.start == kept[-1].start == number.start:
                kept.pop()
                number.text += token.text.upper()
                continue
        kept.append(token)
    return kept


def _check_depth(tree: exp.Expr, limit: int) -> None:
    """Refuse a tree that is deep without brackets, such as thousands of operators in a row."""
    level = [tree]
    for _ in range(limit):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise StatementTooDeep(f"The statement's expressions are more than {limit:,} levels deep.")


def _refuse_other_statements(sql: str, tokens: list[Token]) -> None:
    """Refuse a text that starts with, or has inside brackets, a verb that is no query's.

    The tree alone does not tell: to this dialect's parser ``INSTALL httpfs`` is a column with an alias, and
    ``WITH x AS (COPY ...)`` a syntax error; both deserve to be called what they are.
    """
    previous: Token | None = None
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        starts = previous is None or previous.token_type in (TokenType.L_PAREN, TokenType.SEMICOLON)
        verb = token.text.upper()
        if starts and verb in _NOT_QUERIES and following is not None and _continues(following):
            raise NotAllowed(f"{verb} is not allowed; only queries are.", position_at(sql, token.start))
        previous = token


def _continues(token: Token) -> bool:
    """Tell whether a word goes on as a statement's verb would, not as a column's or function's name."""
    return token.token_type not in (
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.COMMA,
        TokenType.DOT,
        TokenType.EQ,
    )


def _syntax_invalid(error: ParseError) -> SyntaxInvalid:
    first = error.errors[0] if error.errors else {}
    line, column, highlight = first.get("line"), first.get("col"), first.get("highlight") or ""
    position = Position(line, max(1, column - max(0, len(highlight) - 1))) if line and column else None
    near = f" near '{highlight}'" if highlight else ""
    description = str(first.get("description") or "cannot be parsed").partition(" <class")[0].rstrip(" :.")
    return SyntaxInvalid(f"Syntax error{near}: {description}.", position)


def not_cut_into_words(error: TokenError, sql: str) -> SyntaxInvalid:
    """Return what is wrong with a text that the tokenizer cannot read to its end.

    What it misses, and from which character on, stands in nothing but its words: ``Missing ' from 2:11``.
    """
    told = str(error.__cause__ or error)
    missing, _, place = told.removeprefix("Missing ").rpartition(" from ")
    start = place.partition(":")[2]
    if not told.startswith("Missing ") or not start.isdecimal() or int(start) > len(sql):
        return SyntaxInvalid(_first_line(error))
    return SyntaxInvalid(
        f"Syntax error: {missing} is missing at the end of what begins here.", position_at(sql, int(start))
    )


def _first_line(error: Exception) -> str:
    return f"Syntax error: {str(error).splitlines()[0]}"
