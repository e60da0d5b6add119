"""Queries behind the head of a statement: they are checked like any other, in the statement's dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot.tokenizer_core import TokenType

from engines.compiled import CompiledStatement, compiled
from gateway.commands.grammar.reader import Context, Reader
from sql import statement
from sql.tables import View

_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})


def query_text(reader: Reader, *, source: tuple[int, int] = (0, 0)) -> str:
    """Return the rest of a statement as a query. The head is blanked, so that positions stay what they are.

    source: the part of the head, from one place of the text to another, that the query reads from.
    """
    sql, start = reader.sql, reader.peek().start
    begin, end = source
    query = blanked(sql[:begin]) + sql[begin:end] + blanked(sql[end:start]) + sql[start:]
    if reader.accept("VALUES"):  # a query of its own only behind FROM
        query = f"SELECT * FROM ({query.strip().rstrip(';')})"  # noqa: S608 - it is parsed and checked next
    elif reader.accept("TABLE"):
        query = f"SELECT * FROM {sql[reader.peek().start :]}"  # noqa: S608 - the same
    reader.skip_rest()
    return query


def read_query(reader: Reader, *, source: tuple[int, int] = (0, 0)) -> CompiledStatement:
    """Read the rest of a statement as a query. Raises SqlError."""
    return compile_query(reader.context, query_text(reader, source=source), reader.views)


def compile_query(
    context: Context, query: str, views: Mapping[str, View], models: Mapping[str, str] = {}
) -> CompiledStatement:
    """Check a query and write it for engines. views: that it may name. models: cost models, by their writers."""
    checked = statement.check(
        query,
        context.dialect,
        catalog=context.catalog,
        limits=context.limits,
        views=views,
        naming=context.naming,
        facts=context.facts,
        access=context.access,
    )
    return compiled(checked, context.writers, models)


def starts_query(reader: Reader) -> bool:
    """Tell whether the next word begins a query."""
    return reader.next_word in _QUERY_WORDS


def opens_query(reader: Reader) -> bool:
    """Tell whether the next bracket opens a query."""
    at, tokens = reader.at, reader.tokens
    while at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN:
        at += 1
    if not reader.at < at < len(tokens):
        return False
    is_quoted = tokens[at].token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return not is_quoted and tokens[at].text.upper() in _QUERY_WORDS


def blanked(text: str) -> str:
    """Return a text of the same lines and length without a word in it."""
    return re.sub(r"[^\n]", " ", text)
