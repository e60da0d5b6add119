"""``fusion service-account``: users that are programs, and their tokens."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import typer

from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, ExitCode, err, fail, line, out, print_json
from gateway.cli.text.layout import print_table
from gateway.security.principals import Role

ROUTE = "/v1/service-accounts"
UNITS_S = {"m": 60.0, "h": 3_600.0, "d": 86_400.0}
SOON = dt.timedelta(days=14)

accounts_app = typer.Typer(no_args_is_help=True, help="Users that are programs, with tokens that expire.")

Name = Annotated[str, typer.Argument(help="Name of a service account.")]
Expires = Annotated[str, typer.Option(help="Life of the token: 90d, 12h or 30m; 366d at most.")]


@accounts_app.command("add")
@to_gateway
def add_account(
    target: Target,
    name: Annotated[str, typer.Argument(help="Name of the new account; nobody else may have it.")],
    role: Annotated[Role | None, typer.Option(help="Its role; without it, as for other users.")] = None,
    groups: Annotated[str, typer.Option(help="Its groups, with commas between them.")] = "",
    expires: Expires = "90d",
    as_json: AsJson = False,
) -> None:
    """Add a service account and print its token, once: the gateway keeps a hash of it alone."""
    body: dict[str, Any] = {
        "name": name,
        "groups": [group.strip() for group in groups.split(",") if group.strip()],
        "expires_s": _seconds(expires),
    }
    with connected(target) as client:
        added = client.post(ROUTE, body | ({"role": role.value} if role is not None else {}))
    _print_token(added, as_json=as_json)


@accounts_app.command("list")
@to_gateway
def list_accounts(target: Target, as_json: AsJson = False) -> None:
    """List service accounts, and tell which tokens expire soon."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    rows = [
        (
            *(account["name"], account["role"] or "-", ", ".join(account["groups"]) or "-"),
            *(_local(account["expires_at"]), _state(account), account["created_by"]),
        )
        for account in reply["service_accounts"]
    ]
    print_table(out, ("account", "role", "groups", "expires", "state", "added by"), rows, whole={0})


@accounts_app.command("rotate")
@to_gateway
def rotate_account(
    target: Target,
    name: Name,
    expires: Expires = "90d",
    overlap: Annotated[str, typer.Option(help="Time for which the old token counts, too; 30d at most.")] = "0m",
    as_json: AsJson = False,
) -> None:
    """Replace the token of a service account and print the new one, once."""
    body = {"expires_s": _seconds(expires), "overlap_s": _seconds(overlap)}
    with connected(target) as client:
        rotated = client.post(f"{under(ROUTE, name)}/rotate", body)
    _print_token(rotated, as_json=as_json)


@accounts_app.command("revoke")
@to_gateway
def revoke_account(target: Target, name: Name) -> None:
    """Remove a service account: within a second its tokens count nowhere, and its sessions end."""
    with connected(target) as client:
        client.delete(under(ROUTE, name))
    line(f"{name} is revoked; what it owned stays its own until an administrator gives that away")


def _print_token(reply: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(reply)
        return
    account = reply["account"]
    notice = f"token of {account['name']}, until {_local(account['expires_at'])}; it is not shown again"
    err.print(notice, style="dim", markup=False, highlight=False, soft_wrap=True)
    line(reply["token"])


def _seconds(text: str) -> float:
    """Return a duration such as 90d in seconds."""
    number, unit = text[:-1], UNITS_S.get(text[-1:])
    if unit is None or not number.isdecimal() or not number.isascii():
        fail(f"{text!r} is not a duration; give it in days, hours or minutes: 90d, 12h, 30m", ExitCode.USAGE)
    return int(number) * unit


def _local(moment: str) -> str:
    return f"{dt.datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"


def _state(account: Any) -> str:
    remaining = dt.datetime.fromisoformat(account["expires_at"]) - dt.datetime.now(dt.UTC)
    if remaining <= dt.timedelta():
        return "expired"
    return f"expires in {remaining.days} days: rotate it" if remaining < SOON else "valid"
