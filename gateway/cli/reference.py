"""The reference of what is installed, as Markdown: settings and errors. ``docs/reference.md`` holds the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ByteSize

from gateway.errors import KINDS, GatewayError
from gateway.http.errors import DEFAULT_STATUS, STATUS
from gateway.settings import Settings


def lines() -> Iterator[str]:
    """Yield the reference line by line."""
    yield from ("## Settings", "", "| setting | default | meaning |", "|---|---|---|")
    yield from settings_rows(Settings)
    yield from ("", "## Errors", "", "| code | status | SQLSTATE | meaning |", "|---|---|---|---|")
    for code, kind in sorted(KINDS.items()):
        status = STATUS.get(code, DEFAULT_STATUS) if issubclass(kind, GatewayError) else "-"
        meaning = (kind.__doc__ or "").splitlines()[0]
        yield f"| `{code}` | {status} | `{kind.sqlstate}` | {meaning} |"


def settings_rows(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield a row per setting, in the order of its section: name, default, meaning."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield from settings_rows(type(default), f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | `{_shown(default)}` | {' '.join((field.description or '').split())} |"
            for model_of_each in get_args(field.annotation):
                if isinstance(model_of_each, type) and issubclass(model_of_each, BaseModel):
                    yield from settings_rows(model_of_each, f"{prefix}{name}.NAME.")


def _shown(default: Any) -> str:
    if default is None:
        return "-"
    return default.human_readable() if isinstance(default, ByteSize) else str(default)
