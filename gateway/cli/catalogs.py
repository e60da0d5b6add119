"""``fusion catalogs``: Iceberg catalogs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.target import Target, connected, to_gateway, under
from gateway.cli.terminal import AsJson, ExitCode, fail, line, out, print_json
from gateway.cli.text.layout import print_table, printable

ROUTE = "/v1/catalogs"

catalogs_app = typer.Typer(no_args_is_help=True, help="Iceberg catalogs.")

CatalogName = Annotated[str, typer.Argument(help="Name of a catalog.")]


@catalogs_app.command("list")
@to_gateway
def list_catalogs(target: Target, as_json: AsJson = False) -> None:
    """List catalogs with the number of their tables, the age of that list, and the last error."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    rows = [
        (
            one["name"],
            one["type"],
            one["uri"] or "-",
            one["warehouse"] or "-",
            str(one["tables"]),
            _age(one),
            _error(one),
        )
        for one in reply["catalogs"]
    ]
    print_table(out, ("catalog", "type", "uri", "warehouse", "tables", "age", "error"), rows, right={4, 5}, whole={0})


@catalogs_app.command("show")
@to_gateway
def show_catalog(target: Target, name: CatalogName, as_json: AsJson = False) -> None:
    """Show a catalog."""
    with connected(target) as client:
        _show(client.get(under(ROUTE, name)), as_json=as_json)


@catalogs_app.command("test")
@to_gateway
def test_catalog(target: Target, name: CatalogName, as_json: AsJson = False) -> None:
    """Ask a catalog for its tables now; 1 where that fails, with what to do."""
    with connected(target) as client:
        reply = client.post(f"{under(ROUTE, name)}/test", {})
    _show(reply, as_json=as_json)
    if reply["error"] is not None:
        fail(f"{reply['error']} {reply['remedy']}")


@catalogs_app.command("add")
@to_gateway
def add_catalog(
    target: Target,
    name: Annotated[str, typer.Argument(help="First part of its tables' names.")],
    uri: Annotated[str, typer.Option(help="Address at one of catalog.iceberg_uris.")],
    type: Annotated[str, typer.Option(help="rest or hive.")] = "rest",
    warehouse: Annotated[str, typer.Option(help="Name or location of its warehouse.")] = "",
    credential_env: Annotated[
        str, typer.Option(help="Variable of the gateway with its secret, FUSION_CATALOGS_X.")
    ] = "",
    credential_file: Annotated[str, typer.Option(help="File of catalog.iceberg_secrets with its secret.")] = "",
    property: Annotated[list[str] | None, typer.Option(help="name=value of pyiceberg; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a catalog to the gateway, until it is removed."""
    pairs = [text.partition("=") for text in property or ()]
    if not all(key and equals for key, equals, _ in pairs):
        fail("--property: give it as name=value", ExitCode.USAGE)
    body = {"name": name, "type": type, "uri": uri, "warehouse": warehouse}
    secret = {"credential_env": credential_env, "credential_file": credential_file}
    with connected(target) as client:
        added = client.post(ROUTE, body | secret | {"properties": {key: value for key, _, value in pairs}})
    if as_json:
        print_json(added)
    else:
        line(f"{printable(name)}: {added['type']}, {added['tables']:,} tables")


@catalogs_app.command("remove")
@to_gateway
def remove_catalog(target: Target, name: CatalogName, as_json: AsJson = False) -> None:
    """Remove a catalog that was added; its tables stay in it."""
    with connected(target) as client:
        reply = client.delete(under(ROUTE, name))
    if as_json:
        print_json(reply)
    else:
        line(f"{printable(name)} is removed")


def _show(catalog: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(catalog)
        return
    facts = {
        "catalog": catalog["name"],
        "type": catalog["type"],
        "uri": catalog["uri"] or "-",
        "warehouse": catalog["warehouse"] or "-",
        "of": "a command" if catalog["is_added"] else "the settings",
        "tables": f"{catalog['tables']:,}",
        "age": _age(catalog),
        "error": _error(catalog),
    }
    for heading, value in facts.items():
        line(f"{heading:<11}{printable(value)}")


def _age(catalog: Any) -> str:
    return "-" if catalog["age_s"] is None else f"{catalog['age_s']:,.0f} s"


def _error(catalog: Any) -> str:
    return "-" if catalog["error"] is None else f"{catalog['error']} {catalog['remedy']}"
