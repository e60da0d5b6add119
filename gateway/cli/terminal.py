"""Consoles, number formats and exit codes that all commands of ``fusion`` share."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from gateway.cli.text.script import Place, pointed_at
from gateway.server.startup import StartFailed
from selector.wording import mebibytes

if TYPE_CHECKING:
    from gateway.settings import Settings


class ExitCode(IntEnum):
    """Exit codes of the command."""

    FAILED = 1
    """A statement or command failed; standard error says why."""
    USAGE = 2
    """The command line is wrong; nothing was done."""
    UNREACHABLE = 3
    """No gateway answers, or it stopped in the middle: what was printed may not be complete."""
    TIMED_OUT = 124
    """The time that --timeout gives was over; the query was cancelled."""
    INTERRUPTED = 130
    """Ctrl-C; the running query was cancelled."""
    PIPE_CLOSED = 141
    """The command behind the pipe takes no more, such as head; the download was ended."""
    TERMINATED = 143
    """SIGTERM; the running query was cancelled."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave the end to the command."""
        raise BrokenPipeError


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the same as Ctrl-C, with another exit code."""


class FusionGroup(TyperGroup):
    """The command with all below it. However one of them ends, no traceback is seen of what a person does."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; end as other tools do once nobody reads its output any more."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 1)  # for what is still to be flushed
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except KeyboardInterrupt as interrupt:
            terminated = isinstance(interrupt, Terminated)
            raise typer.Exit(ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED) from None
        return result


out = _Console()
err = _Console(stderr=True)

Home = Annotated[Path | None, typer.Option(help="Folder of the gateway; also FUSION_HOME.", show_default=".fusion")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the gateway's whole reply.")]


def settings_of(home: Path | None, *, shown: Path | None = None) -> Settings:
    """Read the settings of a home folder, or end with what is wrong about them. shown: name of its file in messages."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from gateway.settings import FILE_NAME, home_folder, load

    file = shown or home_folder(home) / FILE_NAME
    try:
        return load(home)
    except ValidationError as error:
        fail(f"the settings{f' in {shown}' if shown else ''} are wrong: {'; '.join(map(_problem, error.errors()))}")
    except TOMLDecodeError as error:  # says the line and the column
        fail(f"the settings in {file} are no TOML: {error}")
    except UnicodeDecodeError as error:
        fail(f"the settings in {file} are not in UTF-8: byte {error.start}: {error.reason}")
    except OSError as error:
        fail(f"the settings in {file} cannot be read: {error.strerror}")
    except SettingsError as error:
        fail(f"the settings in FUSION_* variables are wrong: {error}")


def _problem(error: Mapping[str, Any]) -> str:
    """Return what is wrong about a setting, with the nearest names where there is none of its name."""
    from gateway.settings import Settings

    names = [str(part) for part in error["loc"]]
    if error["type"] != "extra_forbidden":
        return f"{'.'.join(names)}: {error['msg']}"
    model: Any = Settings
    for name in names[:-1]:
        model = model.model_fields[name].annotation
    near = get_close_matches(names[-1], model.model_fields, n=1)
    return f"{'.'.join(names)}: unknown setting{f'; did you mean {near[0]}?' if near else ''}"


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end what runs as Ctrl-C does, so that it can be cancelled on the gateway."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def reported(*also: type[Exception]) -> Iterator[None]:
    """End with a message where something fails that a person can mend. also: further errors that say how."""
    from sqlalchemy.exc import SQLAlchemyError

    from gateway.security.authentication import UsersFileInvalid

    mendable: tuple[type[Exception], ...] = (StartFailed, UsersFileInvalid, *also)
    try:
        yield
    except SQLAlchemyError as error:
        fail(f"the metastore (metastore.url) cannot be used: {database_problem(error)}")
    except mendable as error:
        fail(str(error))


def database_problem(error: Exception) -> str:
    """Return the first line of what a database or its driver says."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]


def fail(message: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """End with a message."""
    tell_error(message)
    raise typer.Exit(code)


def fail_at(
    message: str, script: str, place: Place | None, *, within: str = "", code: ExitCode = ExitCode.FAILED
) -> NoReturn:
    """End with what is wrong with a statement, and a caret under the place. within: the file of the script."""
    tell_error_at(message, script, place, within=within)
    raise typer.Exit(code)


def tell_error(message: str) -> None:
    """Print a message as an error."""
    err.print("[red]error:[/red] ", end="")
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def tell_error_at(message: str, script: str, place: Place | None, *, within: str = "") -> None:
    """Print what is wrong with a statement, and a caret under the place. within: the file of the script."""
    where = ", ".join(part for part in (within, str(place) if place else "") if part)
    problem = f"{message} ({where})" if where else message
    pointed = pointed_at(script, place) if place else None
    tell_error("\n".join((problem, *(f"  {line}" for line in pointed or ()))))


def line(text: str) -> None:
    """Print a line, which a terminal wraps between words."""
    out.print(text, markup=False, highlight=False, soft_wrap=not out.is_terminal)


def note(text: str) -> None:
    """Tell a person what happens; what goes on on standard output is none of it."""
    err.print(text, style="dim", markup=False, highlight=False, soft_wrap=not err.is_terminal)


def print_json(reply: Any) -> None:
    """Print what the gateway answered, for programs."""
    sys.stdout.write(json.dumps(reply, indent=2, ensure_ascii=False) + "\n")


def plain(value: Any) -> str:
    """Write a value of a result."""
    match value:
        case None:
            return "NULL"
        case str():
            return value
        case float():
            return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def size(bytes_: int | str | None) -> str:
    """Write bytes; None is unknown, a text is no finite number."""
    if isinstance(bytes_, str):
        return bytes_
    return "unknown" if bytes_ is None else mebibytes(bytes_)


def count(number: float | str | None) -> str:
    """Write how many; None is unknown, a text is no finite number."""
    if isinstance(number, str):
        return number
    return "unknown" if number is None else f"{number:,.0f}"
