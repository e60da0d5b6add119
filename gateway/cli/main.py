"""The ``fusion`` command.

Everything but ``serve`` and ``doctor`` speaks HTTP to a gateway (``target``). Commands import what they need by
themselves, so that none waits for what others need.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.catalogs import catalogs_app
from gateway.cli.queries import queries_app, query_app
from gateway.cli.routing.engines import engines_app
from gateway.cli.routing.gateways import gateways_app
from gateway.cli.routing.parity import parity_app
from gateway.cli.routing.replay import replay_app
from gateway.cli.routing.rules import rules_app
from gateway.cli.routing.savings import savings_app
from gateway.cli.service_accounts import accounts_app
from gateway.cli.setup.config import config_app
from gateway.cli.shell.command import shell_app
from gateway.cli.stats import stats_app
from gateway.cli.tables import cache_app, tables_app
from gateway.cli.target import CertificateFile, Target, Url, UserName, connected, to_gateway, under, use_everywhere
from gateway.cli.terminal import (
    AsJson,
    ExitCode,
    FusionGroup,
    Home,
    fail,
    line,
    out,
    print_json,
    reported,
    settings_of,
    size,
)
from gateway.cli.text.layout import print_table
from gateway.security.principals import Role
from gateway.server.startup import configure_logging

DISTRIBUTION = "fusion-sql-gateway"
MISESTIMATES = "/v1/misestimates"
MOST_PROCESSES = 64  # as settings have it

app = typer.Typer(cls=FusionGroup, no_args_is_help=True, pretty_exceptions_enable=False)
misestimates_app = typer.Typer(no_args_is_help=True, help="What was learned from estimates that were wrong.")
app.add_typer(query_app)
app.add_typer(shell_app)
app.add_typer(queries_app, name="queries")
app.add_typer(tables_app, name="tables")
app.add_typer(cache_app, name="cache")
app.add_typer(catalogs_app, name="catalogs")
app.add_typer(stats_app, name="stats")
app.add_typer(misestimates_app, name="misestimates")
app.add_typer(rules_app, name="rules")
app.add_typer(engines_app, name="engines")
app.add_typer(gateways_app, name="gateways")
app.add_typer(accounts_app, name="service-account")
app.add_typer(config_app, name="config")
app.add_typer(replay_app)
app.add_typer(savings_app)
app.add_typer(parity_app, name="parity")


class Shell(StrEnum):
    """Shells that completion is written for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fusion {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def fusion(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and end.")
    ] = False,
    home: Home = None,
    url: Url = None,
    user: UserName = None,
    certificate: CertificateFile = None,
) -> None:
    """One SQL endpoint over a fast engine and a dependable one: serve it, and speak to it.

    A command speaks to the gateway at --url, to the one that serves --home, or to one of its own for the moment. Both,
    --user and --certificate may also stand before the command.
    """
    use_everywhere(Target(home, url, user, certificate))


@app.command("serve")
def serve_command(
    home: Home = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes free ones, for drivers too.")] = None,
    drivers_port: Annotated[int | None, typer.Option(help="TCP port of drivers; 0 takes a free one.")] = None,
    flight_port: Annotated[int | None, typer.Option(help="TCP port of Flight SQL; 0 takes a free one.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=MOST_PROCESSES, help="Gateways side by side, on the same ports.")
    ] = None,
) -> None:
    """Serve until interrupted."""
    chosen = settings_of(home)
    of_server = {"host": host, "port": port, "processes": processes}
    changes = {name: value for name, value in of_server.items() if value is not None}
    free = 0 if port == 0 else None
    sections: dict[str, object] = {"server": chosen.server.model_copy(update=changes)}
    for name, port in (("hs2", drivers_port), ("flight", flight_port)):
        chosen_port = free if port is None else port
        if chosen_port is not None:
            sections[name] = getattr(chosen, name).model_copy(update={"port": chosen_port})
    chosen = chosen.model_copy(update=sections)
    configure_logging(chosen.log_level, as_json=chosen.logging.format == "json")
    if chosen.server.processes > 1:
        from gateway.server.processes.supervisor import supervise as serve
    else:
        from gateway.server.serve import serve

    with reported():
        serve(chosen)


@app.command()
def password(
    name: Annotated[str, typer.Argument(help="Name of the user.")],
    role: Annotated[Role | None, typer.Option(help="Role of the user; without it, as the settings say.")] = None,
) -> None:
    """Ask for a user's password and print the line for the users file."""
    from gateway.security.authentication import user_line

    typed = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    try:
        typer.echo(user_line(name, typed, role))
    except ValueError as error:
        fail(str(error))


@misestimates_app.command("list")
@to_gateway
def list_misestimates(target: Target, as_json: AsJson = False) -> None:
    """List statements that ran out of memory where the estimate said that they fit."""
    with connected(target) as client:
        reply = client.get(MISESTIMATES)
    if as_json:
        print_json(reply)
        return
    rows = [
        (
            *(
                misestimate["fingerprint"],
                misestimate["engine"],
                size(misestimate["limit_bytes"]),
                size(misestimate["estimated_bytes"]),
            ),
            *(size(misestimate["peak_bytes"]), "yes" if misestimate["in_force"] else "no"),
            *(misestimate["statistics_version"], " ".join(misestimate["sql"].split())),
        )
        for misestimate in reply["misestimates"]
    ]
    headings = ("fingerprint", "engine", "limit", "estimated", "peak", "in force", "statistics", "statement")
    print_table(out, headings, rows, right={2, 3, 4}, whole={0})


@misestimates_app.command("forget")
@to_gateway
def forget_misestimate(
    target: Target, fingerprint: Annotated[str, typer.Argument(help="As listed.")], as_json: AsJson = False
) -> None:
    """Forget what is on record about a statement."""
    with connected(target) as client:
        reply = client.delete(under(MISESTIMATES, fingerprint))
    if as_json:
        print_json(reply)
    else:
        line(f"forgot {reply['forgotten']}")


@app.command()
@to_gateway
def pools(target: Target, as_json: AsJson = False) -> None:
    """List pools with what is held in them, and the leases that queries hold now."""
    with connected(target) as client:
        reply = client.get("/v1/pools") | client.get("/v1/leases")
    if as_json:
        print_json(reply)
        return
    rows = [
        (
            *(pool["name"], _of(str(pool["slots_held"]), pool["slots"]), str(pool["waiting"])),
            _of(size(pool["bytes_held"]), size(pool["memory_bytes"]) if pool["memory_bytes"] is not None else None),
        )
        for pool in reply["pools"]
    ]
    print_table(out, ("pool", "slots", "waiting", "memory"), rows, right={1, 2, 3}, whole={0})
    held = [
        (
            lease["query_id"],
            lease["engine"],
            lease["pool"],
            "-" if lease["memory_bytes"] is None else size(lease["memory_bytes"]),
        )
        for lease in reply["leases"]
    ]
    if held:
        print_table(out, ("query", "engine", "pool", "memory"), held, right={3}, whole={0})


def _of(held: str, limit: object) -> str:
    return held if limit is None else f"{held} of {limit}"


@app.command()
def demo(
    home: Annotated[Path, typer.Option(help="Folder of the demo's gateway and data.")] = Path(".fusion/demo"),
    scale: Annotated[float, typer.Option(help="Share of the paper's rows.", min=1e-4, max=1.0)] = 1 / 32,
    keep_serving: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Go on serving at the end.", show_default="on a terminal"),
    ] = None,
) -> None:
    """Make the paper's bookstore, run its queries and watch one fail over."""
    from gateway.cli.demo import run as demonstration

    with reported(demonstration.DemoFailed):
        stay = sys.stdout.isatty() if keep_serving is None else keep_serving
        demonstration.run(home.expanduser().absolute(), scale=scale, keep_serving=stay, console=out)


@app.command()
def doctor(
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Say what is missing on this machine and how to get it."""
    from gateway.cli.setup.doctor import examine

    findings = examine(settings_of(home))
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    for finding in () if as_json else findings:
        wanting = "[red]missing[/red]" if finding.needed else "[yellow]warning[/yellow]"
        out.print(f"{'[green]ok     [/green]' if finding.good else wanting} {finding.subject}: ", end="")
        out.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
        if not finding.good and finding.remedy:
            out.print(f"        {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    if any(finding.needed and not finding.good for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def reference(
    functions: Annotated[bool, typer.Option("--functions", help="Print Spark's functions instead.")] = False,
) -> None:
    """Print all settings and error codes as Markdown, engines of other packages among them."""
    from gateway.cli.setup.reference import function_lines, lines

    typer.echo("\n".join(function_lines() if functions else lines()))


@app.command()
def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="For which the script is.")]
) -> None:
    """Print a script that completes commands and options; --install-completion puts it where the shell finds it."""
    from typer.completion import shell_complete

    shell_complete(context.find_root().command, {}, "fusion", "_FUSION_COMPLETE", f"source_{shell.value}")
