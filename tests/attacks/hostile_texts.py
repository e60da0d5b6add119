"""Hostile statements from a seed: whatever a reader and an engine's parser could see differently, in every place.

Pieces that one parser ends a text, a name or a comment at and another does not, put together by a small grammar of
queries over one table, with the seed's choices.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

QUERY_DIALECTS = ("spark", "spark", "spark", "hive", "impala")

PIECES = (
    *(
        "'",
        '"',
        "`",
        "''",
        '""',
        "``",
        "\\",
        "\\\\",
        "\\'",
        '\\"',
        "\\`",
        "\\n",
        "\\0",
        "\\u0027",
        "\\x27",
        "\\047",
        "\\%",
    ),
    *(
        "${env:HOME}",
        "${system:user.name}",
        "${hivevar:x}",
        "${x}",
        "${",
        "}",
        "$",
        "$$",
        "$a$",
        "{{",
        "}}",
        "{fn now()}",
    ),
    *("--", "-- ", "/*", "*/", "/*+", "/**/", "#", "//", ";", ";;", "\\;", "--\n", "/* /* */"),
    *(
        "\n",
        "\r",
        "\r\n",
        "\t",
        "\x0b",
        "\x0c",
        "\x00",
        "\x1a",
        "\x85",
        "\xa0",
        "\u1680",
        "\u2028",
        "\u2029",
        "\u3000",
        "\ufeff",
    ),
    *(
        "\u200b",
        "\u200d",
        "\u202e",
        "\u2066",
        "\u2069",
        "\u00ad",
        "\u2018",
        "\u2019",
        "\uff07",
        "\u02bc",
        "\u201c",
        "\uff40",
        "\uff1b",
    ),
    *("\u0130", "\u00df", "\U0001f511", "e\u0301", "\uffff", "\ufffd"),
    *(
        "a",
        "b",
        "1",
        "x y",
        "select",
        "SELECT",
        " from ",
        ",",
        ".",
        "(",
        ")",
        "]",
        "[",
        "%",
        "_",
        "?",
        ":a",
        "@a",
        "=",
        "!",
        "|>",
    ),
    *(
        "transform(",
        "using 'id'",
        "map_reduce",
        "union all select ",
        " or 1=1 ",
        "reflect(",
        "java_method(",
        "read_csv('/etc/passwd')",
    ),
    *("N'", "r'", 'R"', "X'41'", "E'", "U&'", "B'1'", "_utf8'"),
)
NUMBERS = (
    *("1", "0", "-1", "1L", "1S", "1Y", "1.5", "1.5BD", "1e3", "1E-3D", "1.F", ".5", "1_000", "0x1F", "1e", "1..2"),
    *("9223372036854775808", "00012", "1d", "1bd", "2147483648S", "1e400", "1L.a"),
)
TYPES = (
    *("int", "bigint", "decimal(10, 2)", "decimal(38,38)", "string", "varchar(3)", "char(2)", "double", "date"),
    *("timestamp", "timestamp_ntz", "binary", "array<int>", "map<string, int>", "struct<a: int>", "struct<`a b`: int>"),
    *("decimal(`1,0)", "interval day", "interval year to month", "string collate UTF8_LCASE", "void", "`int`", "int)"),
)
HINTS = (
    *(
        "/*+ broadcast(t) */",
        "/*+ broadcast(1S) */",
        "/*+ merge(`t`) */",
        "/*+ repartition(2) */",
        "/*+ ENGINE(duckdb) */",
    ),
    *(
        "/*+ broadcast('t') */",
        "/*+ broadcast(${x}) */",
        "/*+ a(b(c)) */",
        "/*+ x */",
        "/*+ */",
        "/*+ broadcast(t) */ /* ' */",
    ),
    "/*+ broadcast(t */ using 'id' */",
)
INTERVALS = (
    *(
        "interval 1 day",
        "interval '1' day",
        "interval '1 2' day to hour",
        "interval 1 year 2 months",
        "interval -1 day",
    ),
    *("interval '1 day'", "interval 1.5 days", 'interval "1" day', "interval '1' `day`", "interval 'x' day"),
)
PLAIN_FUNCTIONS = ("concat", "upper", "coalesce", "regexp_replace", "length", "count", "max", "hash", "split", "map")
FUNCTIONS = (
    *("concat", "upper", "length", "coalesce", "regexp_replace", "reflect", "java_method", "transform", "count", "sum"),
    *(
        "get_json_object",
        "date_add",
        "timestampadd",
        "extract",
        "read_csv",
        "input_file_name",
        "`concat`",
    ),
    *(
        "default.concat",
        "system.builtin.concat",
        "from_json",
        "xpath",
        "cast",
        "try_cast",
        "current_user",
        "version",
        "session_user",
    ),
)
OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "|",
    "&",
    "^",
    "=",
    "==",
    "<=>",
    "<>",
    "!=",
    "<",
    "<<",
    ">>",
    ">>>",
    "and",
    "or",
    "like",
    "rlike",
    "::",
)


class HostileTexts:
    """Makes statements over the table ``t`` with the columns a, b and ``c d``. The same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets

    def statements(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield pairs of a dialect and a text."""
        for _ in range(count):
            yield self._one(QUERY_DIALECTS), self._statement()

    def _one(self, of: Sequence[str]) -> str:
        return self._random.choice(of)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pieces(self, most: int = 4) -> str:
        return "".join(self._one(PIECES) for _ in range(self._random.randint(0, most)))

    def _text(self) -> str:
        quote = self._one(("'", "'", "'", '"'))
        inside = self._pieces()
        if self._chance(0.95):  # as a careful client writes it, in one way or another
            inside = inside.replace("\\", "\\\\") if self._chance(0.85) else inside
            inside = inside.replace(quote, self._one((quote * 2, "\\" + quote)))
        prefix = self._one(("r", "R", "N", "X", "E", "U&", "date ", "timestamp ")) if self._chance(0.08) else ""
        following = f" {self._text()}" if self._chance(0.05) else ""
        return f"{prefix}{quote}{inside}{quote}{following}"

    def _name(self) -> str:
        if self._chance(0.85):
            return self._one(("a", "b", "t.a", "`c d`", "t.`c d`", "A", "`a`"))
        inside = self._pieces(3) or "a"
        quote = self._one(("`", "`", '"'))
        return quote + (inside.replace(quote, quote * 2) if self._chance(0.8) else inside) + quote

    def _alias(self) -> str:
        if self._chance(0.5):
            return ""
        inside = self._pieces(3) or "n"
        return f" as `{inside.replace('`', '``') if self._chance(0.97) else inside}`"

    def _space(self) -> str:
        if self._chance(0.97):
            return " "
        inside = self._pieces(2)
        return self._one(
            (
                "\n",
                "\t",
                "\r\n",
                "\xa0",
                "\u3000",
                "\u2028",
                f"/*{inside}*/",
                f"--{inside}\n",
                f"/* /*{inside}*/ */",
                "\x0b",
            )
        )

    def _expression(self, depth: int = 0) -> str:
        deeper = depth + 1
        kind = self._random.randrange(16 if depth < 3 else 6)
        match kind:
            case 0 | 1 | 2:
                return self._text()
            case 3:
                return self._one(NUMBERS[: 10 if self._chance(0.8) else None])
            case 4 | 5:
                return self._name()
            case 6 | 7:
                return self._space().join(
                    (
                        self._expression(deeper),
                        self._one(OPERATORS[: None if self._chance(0.1) else -1]),
                        self._expression(deeper),
                    )
                )
            case 8 | 9:
                arguments = [self._expression(deeper) for _ in range(self._random.randint(0, 3))]
                return f"{self._one(FUNCTIONS if self._chance(0.15) else PLAIN_FUNCTIONS)}({', '.join(arguments)})"
            case 10:
                types = TYPES[: 14 if self._chance(0.8) else None]
                return f"{self._one(('cast', 'try_cast'))}({self._expression(deeper)} as {self._one(types)})"
            case 11:
                return self._one(INTERVALS[: None if self._chance(0.3) else 3])
            case 12:
                return f"({self._expression(deeper)})"
            case 13:
                return f"case when {self._expression(deeper)} then {self._expression(deeper)} end"
            case 14:
                return f"({self._query(deeper)})"
            case _:
                return f"{self._expression(deeper)} {self._one(('in', 'not in'))} ({self._expression(deeper)})"

    def _query(self, depth: int = 0) -> str:
        space = self._space
        hint = f" {self._one(HINTS)}" if self._chance(0.05) else ""
        columns = ", ".join(self._expression(depth) + self._alias() for _ in range(self._random.randint(1, 3)))
        source = "t" if depth > 1 or self._chance(0.8) else f"({self._query(depth + 1)}) as s"
        text = f"select{hint}{space()}{columns}{space()}from{space()}{source}"
        if self._chance(0.3):
            text += f"{space()}where{space()}{self._expression(depth + 1)}"
        if self._chance(0.1):
            text += f" order by {self._expression(depth + 1)}"
        if depth == 0 and self._chance(0.1):
            text = f"with w as ({self._query(depth + 1)}) {text}"
        if self._chance(0.05):
            text += f" union all {self._query(depth + 2)}"
        return text

    def _statement(self) -> str:
        text = self._query()
        if self._chance(0.04):  # a piece anywhere
            at = self._random.randrange(len(text))
            text = text[:at] + self._one(PIECES) + text[at:]
        return text + (self._one((";", " --", " /*", "\x00", " -- ' ", "")) if self._chance(0.04) else "")
