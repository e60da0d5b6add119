"""Which gateway a command speaks to, and as whom: START HERE ``connected``.

The one at a URL; or the one that serves a home folder; or one of the command's own for the moment, where none does.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints
from urllib.parse import quote

import typer

from gateway.cli.terminal import ExitCode, Home, err, fail, fail_at, reported, settings_of
from gateway.cli.text.script import Place
from gateway.server.startup import AlreadyServed, configure_logging

if TYPE_CHECKING:
    from gateway.cli.client import Client, Login, RequestFailed
    from gateway.settings import Settings

HOME, URL, USER, PASSWORD, TOKEN = "FUSION_HOME", "FUSION_URL", "FUSION_USER", "FUSION_PASSWORD", "FUSION_TOKEN"
CERTIFICATE = "FUSION_CERTIFICATE"
START_WAIT_S, START_POLL_S = 15.0, 0.2
CODES = {
    "DEADLINE_EXCEEDED": ExitCode.TIMED_OUT,
    "GATEWAY_STOPPED": ExitCode.UNREACHABLE,
    "GATEWAY_LOST": ExitCode.UNREACHABLE,
}

Url = Annotated[str | None, typer.Option(help=f"Address of a gateway that runs; also {URL}.")]
UserName = Annotated[
    str | None,
    typer.Option(help=f"Name to log in with; also {USER}. The password is {PASSWORD}, or asked for; a token {TOKEN}."),
]
CertificateFile = Annotated[
    Path | None, typer.Option(help=f"PEM file to trust beside what the system trusts; also {CERTIFICATE}.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """Gateway that a command line names.

    home: home folder of a gateway on this machine.
    url: address of a gateway anywhere; it takes precedence over ``home``.
    user: user name; None: the value of FUSION_USER.
    certificate: certificate to trust at the URL.
    """

    home: Path | None = None
    url: str | None = None
    user: str | None = None
    certificate: Path | None = None


def to_gateway(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command options for each field of ``Target``; it takes all of them as its parameter ``target``."""
    hints = get_type_hints(command, include_extras=True)
    own = [parameter for parameter in inspect.signature(command).parameters.values() if parameter.name != "target"]
    options: dict[str, Any] = {"home": Home, "url": Url, "user": UserName, "certificate": CertificateFile}
    kind = inspect.Parameter.KEYWORD_ONLY

    @wraps(command)
    def run(**arguments: Any) -> None:
        target = Target(**{name: arguments.pop(name) for name in options})
        command(target=target, **arguments)

    parameters = [parameter.replace(annotation=hints[parameter.name], kind=kind) for parameter in own]
    parameters += [
        inspect.Parameter(name, kind, default=None, annotation=annotation) for name, annotation in options.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def use_everywhere(target: Target) -> None:
    """Let the command that follows speak to this gateway, unless its own options name another: as variables do."""
    if target.url is not None and target.home is not None:
        fail("--url and --home exclude each other", ExitCode.USAGE)
    if target.home is not None:
        os.environ.pop(URL, None)
    values = {HOME: target.home, URL: target.url, USER: target.user, CERTIFICATE: target.certificate}
    os.environ.update({name: str(value) for name, value in values.items() if value is not None})


def under(route: str, name: str) -> str:
    """Return the path of something by its name or id, whatever that is."""
    return f"{route}/{quote(name, safe='') or '-'}"


@contextmanager
def connected(target: Target) -> Iterator[Client]:
    """Give a client of the gateway that is meant, or end with why there is none."""
    import httpx

    from gateway.cli.client import Client, RequestFailed, pinning, trusting

    configure_logging("WARNING")
    url = address_of(target)
    try:
        if url is not None:
            with Client(url, verify=trusting(_certificate(target)), login=_login(target, url)) as client:
                yield client
            return
        chosen = settings_of(target.home)
        with _served(chosen) as url:
            login = _login(target, url)
            with Client(url, verify=pinning(chosen.tls.certificate), login=login) as client:
                yield client
    except RequestFailed as error:
        fail_request(error)
    except httpx.ConnectError as error:
        fail(unreachable(url or "", error), ExitCode.UNREACHABLE)
    except httpx.TransportError as error:
        why = str(error) or type(error).__name__
        problem = f"the gateway at {url} stopped, or the way to it broke, in the middle: {why}"
        fail(f"{problem}; what was printed may not be complete", ExitCode.UNREACHABLE)
    except httpx.InvalidURL as error:
        fail(f"--url {url}: {error}", ExitCode.USAGE)


def fail_request(error: RequestFailed, script: str = "", place: Place | None = None, *, within: str = "") -> NoReturn:
    """End with what a gateway answered. place: in the script; within: the file that holds it."""
    message = message_of(error)
    code = CODES.get(error.code, ExitCode.FAILED)
    fail_at(message, script, place or (Place(*error.place) if error.place else None), within=within, code=code)


def message_of(error: RequestFailed) -> str:
    """Return the code and words of an error, and what to do where a login is missing."""
    message = f"{error.code}: {error.message}"
    if error.code == "AUTHENTICATION_FAILED":
        message += f" Log in with --user NAME, and its password in {PASSWORD}."
    return message


def address_of(target: Target) -> str | None:
    """Return the URL that is asked for, None where a home folder is. A folder that is named goes before a variable."""
    if target.url is not None and target.home is not None:
        fail("--url and --home exclude each other", ExitCode.USAGE)
    url = target.url or (None if target.home is not None else os.environ.get(URL))
    if not url:
        return None
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        fail(f"--url {url}: {error}", ExitCode.USAGE)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        fail(f"--url {url}: give it as http://HOST:PORT or https://HOST:PORT", ExitCode.USAGE)
    if parsed.userinfo:
        fail(f"--url holds a login, which others can read; use --user and {PASSWORD}", ExitCode.USAGE)
    return url.rstrip("/")


def _login(target: Target, url: str) -> Login | None:
    """Return who logs in; a password is asked for on a terminal where no variable has it."""
    from gateway.cli.client import Login

    token = os.environ.get(TOKEN)
    user = target.user or os.environ.get(USER)
    if user is None and not token:
        return None
    _warn_of_plain_text(url)
    if user is None or (target.user is None and token):
        return Login(token=token or "")
    password = os.environ.get(PASSWORD)
    if password is None and err.is_terminal:
        password = str(typer.prompt(f"Password of {user}", hide_input=True, err=True, default="", show_default=False))
    return Login(user=user, password=password or "")


def _warn_of_plain_text(url: str) -> None:
    import httpx

    parsed = httpx.URL(url)
    try:
        is_here = ipaddress.ip_address(parsed.host).is_loopback
    except ValueError:
        is_here = parsed.host == "localhost"
    if parsed.scheme == "http" and not is_here:
        warning = f"warning: the login goes to {parsed.host} unencrypted; use https://"
        err.print(warning, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _certificate(target: Target) -> Path | None:
    named = target.certificate or (Path(os.environ[CERTIFICATE]) if os.environ.get(CERTIFICATE) else None)
    if named is not None and not named.is_file():
        fail(f"the certificate {named} is no file", ExitCode.USAGE)
    return named


def unreachable(url: str, error: Exception) -> str:
    """Return why no gateway answers at an address, and what to do."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"the certificate of {url} is not trusted: {error}; name its file with --certificate"
    return f"no gateway answers at {url}: {error}; start one with fusion serve, or choose another --url"


@contextmanager
def _served(settings: Settings) -> Iterator[str]:
    from gateway.cli.client import running_address

    running = running_address(settings.home)
    if running is not None:
        yield running
        return
    notice = f"no gateway serves {settings.home}: starting one for this command (fusion serve keeps one running)"
    err.print(notice, style="dim", markup=False, highlight=False, soft_wrap=True)
    with reported(), ExitStack() as own:
        from gateway.server.serve import own_server  # takes seconds, which a client of a running one need not wait

        until = time.monotonic() + START_WAIT_S
        while running is None:
            try:
                running = own.enter_context(own_server(_quiet(settings)))
            except AlreadyServed:  # another one comes up, or goes down, at this moment
                if time.monotonic() > until:
                    raise
                time.sleep(START_POLL_S)
                running = running_address(settings.home)
        yield running


def _quiet(chosen: Settings) -> Settings:
    """Return settings for a gateway of the moment: a free port, no Spark before it is needed, no schedules."""
    return chosen.model_copy(
        update={
            "server": chosen.server.model_copy(update={"host": "127.0.0.1", "port": 0}),
            **{adapter.section: section.quiet() for adapter, section in chosen.engines()},
            "schedules": chosen.schedules.model_copy(update={"enabled": False}),
        }
    )
