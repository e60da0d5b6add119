"""What every command of ``fusion`` shares: its consoles, its gateway, its figures and its way to fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from gateway.server.startup import StartFailed, configure_logging
from selector.wording import mebibytes

if TYPE_CHECKING:
    from gateway.cli.client import Client
    from gateway.settings import Settings

FAILED = 1

out = Console()
err = Console(stderr=True)

Home = Annotated[Path | None, typer.Option(help="Folder of the gateway; also FUSION_HOME.", show_default=".fusion")]


def settings_of(home: Path | None) -> Settings:
    """Read the settings of a home folder, or end with what is wrong about them."""
    from pydantic import ValidationError

    from gateway.settings import load

    try:
        return load(home)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        fail(f"the settings are wrong: {problems}")


@contextmanager
def connected(home: Path | None) -> Iterator[Client]:
    """Give a client of the gateway that serves a home, or of one of our own for the moment."""
    from gateway.cli.client import Client

    configure_logging("WARNING")
    chosen = _quiet(settings_of(home))
    with reported(), _served(chosen) as url, Client(url, certificate=chosen.tls.certificate) as client:
        yield client


@contextmanager
def _served(settings: Settings) -> Iterator[str]:
    from gateway.cli.client import running_address

    running = running_address(settings.home)
    if running is not None:
        yield running
        return
    from gateway.server.serve import own_server  # takes seconds, for which a client of a running gateway need not wait

    with own_server(settings) as url:
        yield url


def _quiet(chosen: Settings) -> Settings:
    """Return settings for a gateway of the moment: a free port, no Spark before it is needed, no schedules."""
    return chosen.model_copy(
        update={
            "server": chosen.server.model_copy(update={"host": "127.0.0.1", "port": 0}),
            **{adapter.section: section.quiet() for adapter, section in chosen.engines()},
            "schedules": chosen.schedules.model_copy(update={"enabled": False}),
        }
    )


@contextmanager
def reported(*also: type[Exception]) -> Iterator[None]:
    """End with a message where something fails that a person can mend. also: further errors that say how."""
    from gateway.cli.client import RequestFailed
    from gateway.security.authentication import UsersFileInvalid

    mendable: tuple[type[Exception], ...] = (StartFailed, UsersFileInvalid, *also)
    try:
        yield
    except RequestFailed as error:
        place = f" (line {error.place[0]}, column {error.place[1]})" if error.place else ""
        fail(f"{error.code}: {error.message}{place}")
    except mendable as error:
        fail(str(error))


def fail(message: str) -> NoReturn:
    """End with a message and the exit code of a failure."""
    err.print(f"[red]error:[/red] {message}", highlight=False)
    raise typer.Exit(FAILED)


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
            return json.dumps(value)
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
