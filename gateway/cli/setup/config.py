"""``fusion config``: settings as they are, and what a file would change."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.terminal import AsJson, Home, fail, line, out, print_json, settings_of
from gateway.cli.text.layout import print_table

if TYPE_CHECKING:
    from gateway.settings import Settings

SECRET = "(secret)"  # noqa: S105 - shown in place of one
PREFIX = "FUSION_"
_SECRET_NAME = re.compile(r"(?i)secret|password|passwd|token|access[.]?key|credential")
"""Names of Spark's settings that hold secrets, as its ``spark.redaction.regex`` has them, and some more."""

config_app = typer.Typer(no_args_is_help=True, help="A gateway's settings.")


@config_app.command("show")
def show_config(home: Home = None, as_json: AsJson = False) -> None:
    """Show the settings of a home folder that are not the defaults, variables applied. Secrets are not shown."""
    own, usual = _values(settings_of(home)), _values(_defaults())
    set_here = {name: _text(value) for name, value in own.items() if value is not None and value != usual.get(name)}
    if as_json:
        print_json({"settings": set_here})
        return
    for name, text in set_here.items():
        line(f"{name} = {text}")


@config_app.command("check")
def check_config(
    file: Annotated[Path, typer.Argument(help="A file of settings, such as a new fusion.toml.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a file of settings would change beside those of a home folder; nothing is changed."""
    before, after = _values(settings_of(home)), _values(_settings_in(file))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = [(name, _text(before.get(name)), _text(after.get(name))) for name in names]
    overridden = [name for name in _names_in(file) if _variable(name) in os.environ]
    if as_json:
        listed = [{"setting": name, "now": old, "then": new} for name, old, new in changes]
        print_json({"changes": listed, "overridden": overridden})
        return
    if changes:
        print_table(out, ("setting", "now", "then"), changes, whole={0})
        line("Copy the file to fusion.toml of the home folder and restart the gateway to apply this.")
    else:
        line("The file is right, and changes nothing.")
    for name in overridden:
        line(f"{name}: the variable {_variable(name)} takes precedence over the file")


def _settings_in(file: Path) -> Settings:
    """Read a file as if it were a home folder's own, or end with what is wrong about it."""
    from gateway.settings import FILE_NAME

    with tempfile.TemporaryDirectory() as folder:
        try:
            shutil.copyfile(file, Path(folder) / FILE_NAME)
        except OSError as error:
            fail(f"{file} cannot be read: {error.strerror}")
        return settings_of(Path(folder), shown=file)


def _defaults() -> Settings:
    """Return the settings without a file and without variables."""
    from gateway.settings import Settings

    return Settings.model_construct()


def _values(settings: Settings) -> dict[str, Any]:
    """Return all settings but the home folder by their full names."""
    return {name: value for name, value in _flat(dict(settings)) if name != "home"}


def _flat(section: Mapping[str, Any], before: str = "", *, is_free: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a section by their full names.

    is_free: whoever wrote the file chose the names in it, such as those of Spark's settings, which tell of secrets.
    """
    from pydantic import BaseModel, SecretStr

    for name, value in section.items():
        inner = dict(value) if isinstance(value, BaseModel) else value
        if isinstance(inner, Mapping) and inner:
            yield from _flat(inner, f"{before}{name}.", is_free=not isinstance(value, BaseModel))
        elif not isinstance(inner, Mapping):
            yield f"{before}{name}", SecretStr(str(inner)) if is_free and _SECRET_NAME.search(name) else inner


def _text(value: Any) -> str:
    """Return a value, but nothing of a secret."""
    from pydantic import ByteSize, SecretStr

    if isinstance(value, SecretStr):
        return SECRET
    if isinstance(value, ByteSize):
        return value.human_readable()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text, value))}]"
    return "-" if value is None else str(value)


def _names_in(file: Path) -> list[str]:
    """Return the full names of the settings in a file that was read before."""
    return [name for name, _ in _flat(tomllib.loads(file.read_text(encoding="utf-8")))]


def _variable(name: str) -> str:
    """Return the variable of a setting: ``duckdb.memory`` has FUSION_DUCKDB__MEMORY."""
    return PREFIX + name.replace(".", "__").upper()
