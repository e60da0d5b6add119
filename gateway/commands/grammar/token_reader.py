"""Token reader of statements that are no queries.

No word is reserved, so that a table may be called ``stats``. Names are plain or in backquotes, texts in either kind of
quotes; a name may stand in double quotes too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, NoReturn, TypeVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from sql.errors import MultipleStatements, Position, StatementTooLong, SyntaxInvalid
from sql.nodes import position_at
from sql.parsers.identifier_clause import put_in_names
from sql.parsing import ParserLimits, not_cut_into_words

Item = TypeVar("Item")

GAP = r"(?:[\s;]++|--[^\n]*+|/\*(?s:.)*?\*/)"
"""Pattern of what stands between words: white space, semicolons in front of a statement, comments."""

_FIRST_WORD = re.compile(rf"{GAP}*+([A-Za-z]+)")


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
        "||": TokenType.DPIPE,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


def first_word(sql: str) -> re.Match[str] | None:
    """Match a text's first word, which is its group 1; None where it begins with something else."""
    return _FIRST_WORD.match(sql)


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
    return put_in_names(tokens)


class TokenReader:
    """Reads tokens from left to right.

    ``accept`` takes what is named if it is next; ``expect`` raises where it is not. All others take what their name
    says, or raise. The text is cut into tokens once the first one is needed.
    """

    def __init__(self, sql: str, limits: ParserLimits) -> None:
        self.sql = sql
        self.limits = limits
        self.at = 0
        self._is_read = False

    @cached_property
    def tokens(self) -> Sequence[Token]:
        """All tokens of the text."""
        return words_of(self.sql, self.limits)

    # ------------------------------------------------------------------ look ahead

    def peek(self) -> Token:
        """Return the next token; at the end an empty one with that position."""
        if self.at < len(self.tokens):
            return self.tokens[self.at]
        return Token(TokenType.SEMICOLON, "", start=len(self.sql.rstrip()), end=len(self.sql))

    @property
    def next_word(self) -> str:
        """The next token in capitals, whatever it is."""
        return self.peek().text.upper()

    def more(self) -> bool:
        """Tell whether the statement goes on."""
        return self.peek().token_type is not TokenType.SEMICOLON

    def has_ahead(self, count: int) -> bool:
        """Tell whether at least so many words and signs follow."""
        ahead = self.tokens[self.at : self.at + count]
        return len(ahead) == count and all(token.token_type is not TokenType.SEMICOLON for token in ahead)

    # ------------------------------------------------------------------ words and signs

    def accept(self, *words: str) -> bool:
        """Take some words if they are next, all or none."""
        ahead = self.tokens[self.at : self.at + len(words)]
        if len(ahead) < len(words) or not all(map(is_word, ahead, words)):
            return False
        self.at += len(words)
        return True

    def accept_one(self, *words: str) -> bool:
        """Take the next word if it is one of these."""
        return any(self.accept(word) for word in words)

    def expect(self, *words: str) -> None:
        """Take some words, one after the other."""
        for word in words:
            if not self.accept(word):
                self.unexpected(word)

    def accept_sign(self, kind: TokenType) -> bool:
        """Take a sign if it is next."""
        if self.peek().token_type is not kind:
            return False
        self.at += 1
        return True

    def expect_sign(self, kind: TokenType, sign: str) -> None:
        """Take a sign. sign: as an error shows it."""
        if not self.accept_sign(kind):
            self.unexpected(sign)

    def skip(self) -> None:
        """Take the next token, whatever it is."""
        self.at += 1

    def accept_open(self) -> bool:
        """Take an opening bracket if it is next."""
        return self.accept_sign(TokenType.L_PAREN)

    def expect_open(self) -> None:
        """Take an opening bracket."""
        self.expect_sign(TokenType.L_PAREN, "(")

    def expect_close(self) -> None:
        """Take a closing bracket."""
        self.expect_sign(TokenType.R_PAREN, ")")

    def rest_of_list(self, read_one: Callable[[], Item]) -> list[Item]:
        """Read a list whose bracket is open, up to the closing one. read_one: reads one item."""
        items = [read_one()]
        while not self.accept_sign(TokenType.R_PAREN):
            self.expect_sign(TokenType.COMMA, ", or )")
            items.append(read_one())
        return items

    def listed(self, read_one: Callable[[], Item]) -> list[Item]:
        """Read items with commas between."""
        items = [read_one()]
        while self.accept_sign(TokenType.COMMA):
            items.append(read_one())
        return items

    # ------------------------------------------------------------------ names and values

    def name(self) -> str:
        """Read a name, plain or quoted."""
        token = self.peek()
        quoted = token.token_type is TokenType.STRING and self.sql[token.start] == '"'
        if not quoted and token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            self.unexpected("a name")
        self.at += 1
        return token.text

    def name_parts(self) -> list[str]:
        """Read a name and what stands before it, with dots between."""
        parts = [self.name()]
        while self.accept_sign(TokenType.DOT):
            parts.append(self.name())
        return parts

    def text(self, what: str) -> str:
        """Read a text in quotes. what: it is, as an error says."""
        token = self.peek()
        if token.token_type is not TokenType.STRING:
            self.unexpected(what)
        self.at += 1
        return token.text

    def text_or_name(self, what: str) -> str:
        """Read a text in quotes, or a name."""
        return self.text(what) if self.peek().token_type is TokenType.STRING else self.name()

    def number(self) -> float:
        """Read a number."""
        token = self.peek()
        if token.token_type is not TokenType.NUMBER:
            self.unexpected("a number")
        self.at += 1
        try:
            return float(token.text)
        except ValueError:
            raise SyntaxInvalid(f"Syntax error: {token.text} is not a number.", self.position(token)) from None

    def literal(self) -> str:
        """Read a text, or a number as it is written."""
        sign = "-" if self.accept_sign(TokenType.DASH) else ""
        token = self.peek()
        if token.token_type is not TokenType.NUMBER and (sign or token.token_type is not TokenType.STRING):
            self.unexpected("a value")
        self.at += 1
        return sign + token.text

    def properties(self) -> dict[str, str]:
        """Read ``('key' = 'value', ...)``; keys may be names with dots, values words, and the sign may be missing."""
        self.expect_open()
        return dict(self.rest_of_list(self._property))

    def _property(self) -> tuple[str, str]:
        key = self.key()
        self.accept_sign(TokenType.EQ)
        return key, self.name() if self.peek().token_type is TokenType.VAR else self.literal()

    def keys(self) -> tuple[str, ...]:
        """Read ``('key', ...)``."""
        self.expect_open()
        return tuple(self.rest_of_list(self.key))

    def key(self) -> str:
        """Read the name of a property, in quotes or with dots."""
        if self.peek().token_type is TokenType.STRING:
            return self.text("a key")
        return ".".join(self.name_parts())

    # ------------------------------------------------------------------ the end, and mistakes

    def restart(self) -> None:
        """Go back to the first token."""
        self.at, self._is_read = 0, False

    def skip_rest(self) -> None:
        """Take all that follows: it is read in another way."""
        self._is_read = True

    def end(self) -> None:
        """Raise SqlError where the text goes on."""
        if self._is_read:
            return
        if self.more():
            self.unexpected("the end")
        for token in self.tokens[self.at :]:
            if token.token_type is not TokenType.SEMICOLON:
                raise MultipleStatements("One statement at a time; this text holds more.", self.position(token))

    def unexpected(self, wanted: str) -> NoReturn:
        """Raise SyntaxInvalid at the next token."""
        token = self.peek()
        near = f"near '{token.text}'" if token.text else "at the end"
        raise SyntaxInvalid(f"Syntax error {near}: {wanted} is expected here.", self.position(token))

    def position(self, token: Token) -> Position:
        """Return where a token stands."""
        return position_at(self.sql, token.start)


def is_word(token: Token, word: str) -> bool:
    """Tell whether a token is a word without quotes."""
    return token.token_type is TokenType.VAR and token.text.upper() == word
