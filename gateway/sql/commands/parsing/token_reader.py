"""Words of a statement that no query parser reads, one after the other.

No word is reserved, so that a table may be called ``stats``. Names are plain or in backquotes, texts in either kind of
quotes; a name may stand in double quotes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from gateway.errors import MultipleStatements, StatementTooLong, SyntaxInvalid
from gateway.sql.nodes import position_at
from gateway.sql.parsing import ParserLimits, not_cut_into_words
from metastore.records import Position


class _Words(Tokenizer):
    """Cuts a statement into words."""

    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "==": TokenType.EQ,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


def words_of(sql: str, limits: ParserLimits) -> list[Token]:
    """Cut a text into words, without semicolons in front. Raises SqlError."""
    try:
        tokens = _Words().tokenize(sql)
    except TokenError as error:
        raise not_cut_into_words(error, sql) from error
    if len(tokens) > limits.tokens:
        raise StatementTooLong(f"The statement has more than {limits.tokens:,} words and signs.")
    while tokens and tokens[0].token_type is TokenType.SEMICOLON:
        del tokens[0]
    return tokens


class WordReader:
    """Reads words from left to right; each method takes what its name says or raises with the word that is wrong."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self._sql = sql
        self._tokens = tokens
        self._at = 0

    def _token(self) -> Token:
        """Return the next token; at the end an empty one that stands there."""
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return Token(TokenType.SEMICOLON, "", start=len(self._sql.rstrip()), end=len(self._sql))

    def _more(self) -> bool:
        return self._token().token_type is not TokenType.SEMICOLON

    def _ahead(self, count: int) -> bool:
        """Tell whether at least so many words and signs follow."""
        ahead = self._tokens[self._at : self._at + count]
        return len(ahead) == count and all(token.token_type is not TokenType.SEMICOLON for token in ahead)

    def _words(self, *words: str) -> bool:
        """Take some words if they are next, all or none."""
        ahead = self._tokens[self._at : self._at + len(words)]
        if len(ahead) < len(words) or not all(map(_is_word, ahead, words)):
            return False
        self._at += len(words)
        return True

    def _need(self, word: str) -> None:
        if not self._words(word):
            self._unexpected(word)

    def _sign(self, kind: TokenType) -> bool:
        if self._token().token_type is not kind:
            return False
        self._at += 1
        return True

    def _need_sign(self, kind: TokenType, sign: str) -> None:
        if not self._sign(kind):
            self._unexpected(sign)

    def _name(self) -> str:
        token = self._token()
        quoted = token.token_type is TokenType.STRING and self._sql[token.start] == '"'
        if not quoted and token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            self._unexpected("a name")
        self._at += 1
        return token.text

    def _text(self, what: str) -> str:
        token = self._token()
        if token.token_type is not TokenType.STRING:
            self._unexpected(what)
        self._at += 1
        return token.text

    def _number(self) -> float:
        token = self._token()
        if token.token_type is not TokenType.NUMBER:
            self._unexpected("a number")
        self._at += 1
        try:
            return float(token.text)
        except ValueError:
            raise SyntaxInvalid(f"Syntax error: {token.text} is not a number.", self._position(token)) from None

    def _literal(self) -> str:
        """Read a text, or a number as it is written."""
        sign = "-" if self._sign(TokenType.DASH) else ""
        token = self._token()
        if token.token_type is not TokenType.NUMBER and (sign or token.token_type is not TokenType.STRING):
            self._unexpected("a value")
        self._at += 1
        return sign + token.text

    def _properties(self) -> dict[str, str]:
        """Read ``('key' = 'value', ...)``; keys may be names with dots, values words, and the sign may be missing."""
        found: dict[str, str] = {}
        self._need_sign(TokenType.L_PAREN, "(")
        while True:
            key = self._key()
            self._sign(TokenType.EQ)
            is_word = self._token().token_type is TokenType.VAR
            found[key] = self._name() if is_word else self._literal()
            if self._sign(TokenType.R_PAREN):
                return found
            self._need_sign(TokenType.COMMA, ", or )")

    def _keys(self) -> tuple[str, ...]:
        """Read ``('key', ...)``."""
        self._need_sign(TokenType.L_PAREN, "(")
        keys = [self._key()]
        while self._sign(TokenType.COMMA):
            keys.append(self._key())
        self._need_sign(TokenType.R_PAREN, ", or )")
        return tuple(keys)

    def _key(self) -> str:
        if self._token().token_type is TokenType.STRING:
            return self._text("a key")
        parts = [self._name()]
        while self._sign(TokenType.DOT):
            parts.append(self._name())
        return ".".join(parts)

    def _end(self) -> None:
        if self._more():
            self._unexpected("the end")
        for token in self._tokens[self._at :]:
            if token.token_type is not TokenType.SEMICOLON:
                raise MultipleStatements("One statement at a time; this text holds more.", self._position(token))

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._token()
        near = f"near '{token.text}'" if token.text else "at the end"
        raise SyntaxInvalid(f"Syntax error {near}: {wanted} is expected here.", self._position(token))

    def _position(self, token: Token) -> Position:
        return position_at(self._sql, token.start)


def _is_word(token: Token, word: str) -> bool:
    return token.token_type is TokenType.VAR and token.text.upper() == word
