"""``fusion tables``: what is registered."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.target import Target, address_of, connected, to_gateway, under
from gateway.cli.terminal import AsJson, ExitCode, count, err, fail, line, out, print_json, size
from gateway.cli.text.layout import print_table, printable
from metastore.hive.client import HiveFailed, HiveMetastore
from metastore.objects.store import is_remote
from selector.quoting import spark_name, spark_string
from sql.tables import DEFAULT_DATABASE, full_name

if TYPE_CHECKING:
    from gateway.cli.client import Client
    from metastore.hive.tables import HiveFiles

ROUTE = "/v1/tables"

tables_app = typer.Typer(no_args_is_help=True, help="Registered tables.")
cache_app = typer.Typer(no_args_is_help=True, help="Copies of files in object stores.")

TableName = Annotated[str, typer.Argument(help="Name of a table.")]


@tables_app.command("add")
@to_gateway
def add_table(
    target: Target,
    name: Annotated[str, typer.Argument(help="Name in statements.")],
    path: Annotated[str, typer.Argument(help="Folder or file, or s3://bucket/folder.")],
    format: Annotated[
        str | None, typer.Option(help="parquet, csv, json, orc, avro, delta or iceberg; detected without it.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of text.")] = None,
    header: Annotated[bool | None, typer.Option(help="Whether text has a line of names.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Register it anew if there is one of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register a table. At a --url, the path is one of the gateway's machine."""
    if address_of(target) is None and not is_remote(path):
        path = str(Path(path).resolve())
        if not Path(path).exists():
            fail(f"{path} does not exist", ExitCode.USAGE)
    options = {"delimiter": delimiter, "header": None if header is None else str(header).lower()}
    body = {"name": name, "location": path, "options": {k: v for k, v in options.items() if v is not None}}
    with connected(target) as client:
        registered = None if replace else _registered_table(client, name)
        if registered is not None:
            problem = (
                f"there is a table {registered['name']} already ({registered['format']}, {registered['files']} files)"
            )
            fail(f"TABLE_EXISTS: {problem}; --replace registers it anew")
        added = client.post(ROUTE, body | ({"format": format} if format else {}))
    if as_json:
        print_json(added)
    else:
        _print_added(added)


@tables_app.command("import")
@to_gateway
def import_tables(
    target: Target,
    hive_metastore: Annotated[str, typer.Option(help="thrift://host:port, or several with commas between them.")],
    names: Annotated[list[str] | None, typer.Argument(help="Tables; all of the database without any.")] = None,
    database: Annotated[str, typer.Option(help="Database of the metastore.")] = DEFAULT_DATABASE,
    as_json: AsJson = False,
) -> None:
    """Register tables of a Hive Metastore, whose files the gateway must see where the metastore says that they are.

    They come into the gateway's database of the same name, which is made if it is not there.
    """
    from gateway.cli.client import RequestFailed
    from metastore.hive.tables import files_of

    refused, added = 0, []
    try:
        with connected(target) as client, HiveMetastore(hive_metastore) as hive:
            wanted = names or hive.tables(database)
            client.query(f"CREATE DATABASE IF NOT EXISTS {spark_name(database)}")
            for name in wanted:
                try:
                    files = files_of(hive, database, name)
                    added.append(client.post(ROUTE, _registration(files) | {"name": full_name(database, files.name)}))
                except (HiveFailed, RequestFailed) as error:
                    refused += 1
                    err.print(f"{name}: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
                    continue
                if not as_json:
                    _print_added(added[-1])
    except HiveFailed as error:
        fail(str(error))
    if as_json:
        print_json({"tables": added})
    if refused:
        raise typer.Exit(ExitCode.FAILED)


@tables_app.command("list")
@to_gateway
def list_tables(target: Target, as_json: AsJson = False) -> None:
    """List registered tables."""
    with connected(target) as client:
        reply = client.get(ROUTE)
    if as_json:
        print_json(reply)
        return
    print_tables(reply["tables"])


def print_tables(tables: Iterable[Mapping[str, Any]]) -> None:
    """Print registered tables, a row each."""
    rows = []
    for entry in tables:
        build = entry["statistics_version"]
        statistics = f"version {build}" if build else "none"
        numbers = (str(entry["files"]), size(entry["bytes"]), count(entry["rows"]))
        rows.append((entry["name"], entry["format"], *numbers, statistics, entry["owner"] or "-"))
    headings = ("table", "format", "files", "size", "rows", "statistics", "owner")
    print_table(out, headings, rows, right={2, 3, 4}, whole={0})


@tables_app.command("show")
@to_gateway
def show_table(target: Target, name: TableName, as_json: AsJson = False) -> None:
    """Show a table with its columns, partitions and keys."""
    with connected(target) as client:
        shown = client.get(under(ROUTE, name))
    if as_json:
        print_json(shown)
        return
    build = shown["statistics_version"]
    facts = {
        "table": shown["name"],
        "format": shown["format"],
        "files": f"{shown['files']:,}, {size(shown['bytes'])}",
        "rows": count(shown["rows"]),
        **({"copied here": size(shown["copied_bytes"])} if shown["copied_bytes"] else {}),
        "owner": shown["owner"] or "-",
        "statistics": f"version {build}" if build else "none",
        "partitions": f"{len(shown['partitions']):,}" if shown["partition_columns"] else "-",
    }
    for heading, value in facts.items():
        line(f"{heading:<12}{printable(value)}")
    for key in shown["keys"]:
        line(f"key         {key['left']} = {key['right']} ({key['source']})")
    parts = set(shown["partition_columns"])
    rows = [
        (column["name"], column["type"], "partition" if column["name"] in parts else "") for column in shown["columns"]
    ]
    print_table(out, ("column", "type", ""), rows, whole={0})


@tables_app.command("remove")
@to_gateway
def remove_table(
    target: Target,
    name: TableName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a table. Its files stay, unless a statement made it here: then they go, too."""
    if not yes:
        if not sys.stdin.isatty():
            fail("nobody can be asked here; say --yes", ExitCode.USAGE)
        question = f"Remove {printable(name)}, and its files if a statement made it?"
        typer.confirm(question, abort=True, err=True)
    run_statement(target, f"DROP TABLE {quoted_name(name)}", f"{printable(name)} is removed", as_json=as_json)


@cache_app.command("warm")
@to_gateway
def warm_cache(
    target: Target,
    name: TableName,
    columns: Annotated[str | None, typer.Option(help="Columns, with commas between them; all without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a table of an object store to the gateway's machine, before somebody reads it."""
    options = "" if columns is None else f" OPTIONS ('columns' = {spark_string(columns)})"
    run_statement(target, f"CACHE TABLE {quoted_name(name)}{options}", as_json=as_json)


def run_statement(target: Target, sql: str, done: str = "", *, as_json: bool) -> None:
    """Run one statement, and end with its error if it fails. done: what is printed then; its own row without it."""
    with connected(target) as client:
        reply = client.query(sql)
    if reply["error"]:
        fail(f"{reply['error']['code']}: {reply['error']['message']}")
    if as_json:
        print_json(reply)
    else:
        line(done or reply["rows"][0][0])


def quoted_name(name: str) -> str:
    """Return a table's name of one or more parts as a statement has it."""
    return ".".join(spark_name(part) for part in name.split("."))


def _registered_table(client: Client, name: str) -> Any:
    from gateway.cli.client import RequestFailed

    try:
        return client.get(under(ROUTE, name))
    except RequestFailed as error:
        if error.code in ("NOT_FOUND", "UNKNOWN_TABLE", "UNKNOWN_DATABASE"):
            return None
        raise


def _registration(files: HiveFiles) -> dict[str, Any]:
    columns = [{"name": column.name, "type": column.data_type} for column in files.columns]
    return {
        **{"name": files.name, "location": files.location, "format": files.format},
        **{"columns": columns, "options": dict(files.options)},
    }


def _print_added(added: dict[str, Any]) -> None:
    line(f"{added['name']}: {added['format']}, {len(added['columns'])} columns, {count(added['rows'])} rows")
