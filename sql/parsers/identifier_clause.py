"""Spark's ``IDENTIFIER('a.b')``: before a statement is parsed, the name in the string literal replaces the call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token, TokenType

_NAME = re.compile(r"\s*(?:`(?:[^`]|``)+`|\w+)(?:\.(?:`(?:[^`]|``)+`|\w+))*\s*")
_PARTS = re.compile(r"`(?:[^`]|``)+`|\w+")


def put_in_names(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens with names instead of ``IDENTIFIER`` of strings; other calls of it stay, and are refused later."""
    names: list[Token] = []
    at = 0
    while at < len(tokens):
        end, text = _constant(tokens, at) if tokens[at].text.upper() == "IDENTIFIER" else (at, "")
        if end > at and _NAME.fullmatch(text):
            names += _tokens_of(text, tokens[at].start, tokens[end - 1].end)
            at = end
        else:
            names.append(tokens[at])
            at += 1
    return names


def _constant(tokens: Sequence[Token], at: int) -> tuple[int, str]:
    """Return the index after a call whose argument is strings, with or without || between them, and their text."""
    texts: list[str] = []
    if tokens[at].token_type is not TokenType.VAR or _kind(tokens, at + 1) is not TokenType.L_PAREN:
        return at, ""
    place = at + 2
    while _kind(tokens, place) is TokenType.STRING:
        texts.append(tokens[place].text)
        place += 2 if _kind(tokens, place + 1) is TokenType.DPIPE else 1
    is_whole = bool(texts) and _kind(tokens, place) is TokenType.R_PAREN
    return (place + 1, "".join(texts)) if is_whole and _kind(tokens, place - 1) is TokenType.STRING else (at, "")


def _kind(tokens: Sequence[Token], at: int) -> TokenType | None:
    return tokens[at].token_type if at < len(tokens) else None


def _tokens_of(text: str, start: int, end: int) -> Iterator[Token]:
    for number, part in enumerate(_PARTS.findall(text)):
        if number:
            yield Token(TokenType.DOT, ".", start=start, end=end)
        if part.startswith("`"):
            yield Token(TokenType.IDENTIFIER, part[1:-1].replace("``", "`"), start=start, end=end)
        else:
            yield Token(TokenType.VAR, part, start=start, end=end)
