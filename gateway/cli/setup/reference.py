"""The reference of what is installed, as Markdown: settings, errors and functions. The documents hold the same rows."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, ByteSize
from pydantic_core import PydanticUndefined

from gateway.errors import ERRORS
from gateway.http.errors import status_of
from gateway.settings import Settings
from sql.allowlist.functions import FUNCTIONS, IN_EVERY_DIALECT, REFUSED, TABLE_FUNCTIONS, UNREPEATABLE
from sql.limits.arguments import LIMITS
from sql.limits.sizes import COUNTS, FORMATS, MOST_BYTES

_FUNCTIONS_PREFACE = (
    "Every function of Spark 4.3, and whether a statement may call it; `fusion reference --functions` prints this page",
    "from `sql/allowlist/functions.py`. A function that DuckDB has no equal for runs on Spark (docs/sql.md). A",
    "constant count, width or bound past its limit is refused as `VALUE_OUT_OF_RANGE`; one that comes from data is",
    "checked as the statement runs. Where a function has a limit, its arguments are given by place.",
)


def lines() -> Iterator[str]:
    """Yield the reference line by line."""
    yield from ("## Settings", "", "| setting | default | meaning |", "|---|---|---|")
    yield from settings_rows(Settings)
    yield from ("", "## Errors", "", "| code | kind | status | SQLSTATE | meaning |", "|---|---|---|---|---|")
    for code, error in sorted(ERRORS.items()):
        meaning = (error.__doc__ or "").splitlines()[0]
        yield f"| `{code}` | {error.kind} | {status_of(code)} | `{error.sqlstate}` | {meaning} |"


def settings_rows(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield a row per setting, in the order of its section: name, default, meaning."""
    meanings = _docstrings(model)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings_rows(type(default), f"{prefix}{name}.")
        else:
            meaning = " ".join((field.description or meanings[name]).split())
            yield f"| `{prefix}{name}` | `{_shown(default)}` | {meaning} |"
            for model_of_each in get_args(field.annotation):
                if isinstance(model_of_each, type) and issubclass(model_of_each, BaseModel):
                    yield from settings_rows(model_of_each, f"{prefix}{name}.NAME.")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a section's fields; pydantic would read them at every start of every process."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        try:
            source = inspect.getsource(base)
        except OSError:  # made at run time, where fields have descriptions
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in pairwise(definition.body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = text
    return docstrings


def _shown(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "-"
    return default.human_readable() if isinstance(default, ByteSize) else str(default) or "-"


def function_lines() -> Iterator[str]:
    """Yield the page of Spark's functions, ``docs/functions.md``, line by line."""
    yield from ("# Functions", "")
    yield from _FUNCTIONS_PREFACE
    yield from ("", "## Allowed in every dialect", "", _listed(IN_EVERY_DIALECT))
    yield from ("", "## Allowed in the dialect `spark`", "", _listed(FUNCTIONS - IN_EVERY_DIALECT))
    yield from ("", "## In place of a table", "", _listed(TABLE_FUNCTIONS))
    yield from ("", "## Never answered from the cache", "", _listed(UNREPEATABLE))
    yield from ("", "## With a limit", "", "| function | takes |", "|---|---|")
    for name in sorted({*LIMITS, *COUNTS, "sequence", *FORMATS}):
        words = [limit.wanted for limit in LIMITS.get(name, ())] or [f"what makes at most {MOST_BYTES:,} bytes"]
        yield f"| `{name}` | {'; '.join(words)} |"
    yield from ("", "## Refused", "", "| function | because |", "|---|---|")
    for name, reason in sorted(REFUSED.items()):
        yield f"| `{name}` | {reason} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
