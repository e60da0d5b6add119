"""A renderer of the part of Helm's template language that our chart uses; what it does not know is an error.

Helm itself cannot be had from a package index, so that tests would skip where it is missing.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(\s*)", re.DOTALL)
TEXT = '"'


class ChartError(Exception):
    """A value is missing, or a template uses something that the renderer does not know."""


def rendered(chart: Path, release: str, namespace: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the manifests of a chart. values: beside, and instead of, those of its values.yaml. Raises ChartError."""
    own = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    context = {
        "Values": _merged(own, values),
        "Release": {"Name": release, "Namespace": namespace},
        "Chart": {"AppVersion": about["appVersion"], "Version": about["version"]},
    }
    texts = [_render(file.read_text(encoding="utf-8"), context) for file in sorted(chart.glob("templates/**/*.yaml"))]
    manifests = [manifest for text in texts for manifest in yaml.safe_load_all(text)]
    return [manifest for manifest in manifests if manifest is not None]


def _merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, Mapping) or not isinstance(changes, Mapping):
        return changes
    unknown = set(changes) - set(base)
    if unknown and base:
        raise ChartError(f"values.yaml has no {', '.join(sorted(unknown))}")
    return {**base, **{name: _merged(base.get(name, {}), value) for name, value in changes.items()}}


def _render(text: str, context: Mapping[str, Any]) -> str:
    tokens = list(_tokens(text))
    return "".join(_play(tokens, _Place(), context, context, is_shown=True))


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield pieces of text, and actions (True); whitespace that an action trims is gone."""
    at = 0
    for match in ACTION.finditer(text):
        before, trims_left, action, trims_right, after = match.groups()
        yield text[at : match.start()] + ("" if trims_left else before), False
        yield action, True
        at = match.end() if trims_right else match.end() - len(after)
    yield text[at:], False


class _Place:
    """Number of the next token."""

    def __init__(self) -> None:
        self.at = 0


def _play(
    tokens: Sequence[tuple[str, bool]], place: _Place, root: Any, dot: Any, *, is_shown: bool, until: str = ""
) -> Iterator[str]:
    """Yield the output of tokens up to ``end`` or ``else`` of the action that opened them."""
    while place.at < len(tokens):
        token, is_action = tokens[place.at]
        place.at += 1
        if not is_action:
            if is_shown:
                yield token
        elif token in ("end", "else"):
            if not until:
                raise ChartError(f"{token} closes nothing")
            place.at -= 1
            return
        elif token.startswith("if "):
            holds = is_shown and bool(_value(token[3:], root, dot))
            yield from _play(tokens, place, root, dot, is_shown=is_shown and holds, until="if")
            if tokens[place.at][0] == "else":
                place.at += 1
                yield from _play(tokens, place, root, dot, is_shown=is_shown and not holds, until="if")
            place.at += 1
        elif token.startswith("range "):
            items = _value(token[6:], root, dot) if is_shown else []
            body = place.at
            for item in items:
                place.at = body
                yield from _play(tokens, place, root, item, is_shown=True, until="range")
            if not items:
                list(_play(tokens, place, root, dot, is_shown=False, until="range"))
            place.at += 1
        elif is_shown:
            yield _text(_value(token, root, dot))
    if until:
        raise ChartError(f"{until} has no end")


def _value(pipeline: str, root: Any, dot: Any) -> Any:
    """Return the value of an expression such as ``toYaml .Values.resources | indent 8``."""
    value: Any = None
    for number, part in enumerate(pipeline.split("|")):
        words = shlex.split(part.strip(), posix=False)
        arguments = [_operand(word, root, dot) for word in words[1:]] + ([value] if number else [])
        value = _call(words[0], arguments) if number or len(words) > 1 else _operand(words[0], root, dot)
    return value


def _operand(word: str, root: Any, dot: Any) -> Any:
    if word.startswith(TEXT):
        return word.strip(TEXT)
    if word.isdigit():
        return int(word)
    if word == ".":
        return dot
    if not word.startswith("."):
        raise ChartError(f"the renderer does not know {word}")
    value = root
    for name in word[1:].split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise ChartError(f"there is no value {word}")
        value = value[name]
    return value


def _call(function: str, arguments: Sequence[Any]) -> Any:
    match function, list(arguments):
        case "quote", [value]:
            return f'"{_text(value)}"'
        case "toYaml", [value]:
            return yaml.safe_dump(value, sort_keys=False).rstrip("\n")
        case "indent", [int(count), str(value)]:
            return textwrap.indent(value, " " * count)
        case "sha256sum", [str(value)]:
            return hashlib.sha256(value.encode()).hexdigest()
        case "required", [str(message), value]:
            if not value:
                raise ChartError(message)
            return value
    raise ChartError(f"the renderer does not know {function} of {len(arguments)} arguments")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
