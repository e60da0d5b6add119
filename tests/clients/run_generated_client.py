"""A client generated from /openapi.json by openapi-python-client, as it is, asks a real gateway everyday things.

    python -m tests.clients.run_generated_client

It is generated and run in an environment of its own that is made for the run, unless ``--tool`` names the program.
Exits with 0 where every answer was the expected one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from tests.clients.run_schemathesis import BOOKS, PASSWORD, USER, installed, serving

PACKAGE = "generated"
# Runs where nothing of the project is: only what was generated, with the libraries that it names.
ASKING = f"""
import sys, time
from http import HTTPStatus
from {PACKAGE} import AuthenticatedClient, Client
from {PACKAGE}.api.catalog import get_table, list_tables
from {PACKAGE}.api.queries import cancel_query, get_query, get_result, list_queries, run_query
from {PACKAGE}.api.health import readyz
from {PACKAGE}.models import ErrorReply, QueryRequest, TableReply

url, token = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=token, prefix="Basic") as client:
    assert readyz.sync(client=client).status == "ready"
    tables = list_tables.sync(client=client).tables
    assert [table.name for table in tables] == ["books"]
    table = get_table.sync("books", client=client)
    assert isinstance(table, TableReply) and [column.name for column in table.columns] == ["id", "price"]

    asked = QueryRequest(sql="SELECT id FROM books ORDER BY id", wait_s=0.0)
    begun = run_query.sync_detailed(client=client, body=asked)
    assert begun.status_code in (HTTPStatus.OK, HTTPStatus.ACCEPTED)
    query = begun.parsed
    while query.state not in ("FINISHED", "FAILED", "CANCELLED"):
        time.sleep(0.05)
        query = get_query.sync(query.id, client=client, max_rows=3)
    assert query.state == "FINISHED", query
    assert get_query.sync(query.id, client=client, max_rows=3).rows == [[0], [1], [2]]
    assert len(get_result.sync(query.id, client=client).rows) == {BOOKS}
    download = client.get_httpx_client()  # the generator reads one type per status, which is JSON
    as_csv = download.get(f"/v1/queries/{{query.id}}/result", params={{"format": "csv"}})
    assert as_csv.content.splitlines()[:2] == [b'"id"', b"0"], as_csv.content[:80]
    assert [each.id for each in list_queries.sync(client=client, limit=1).queries] == [query.id]
    assert cancel_query.sync(query.id, client=client).state == "FINISHED"

    wrong = run_query.sync_detailed(client=client, body=QueryRequest(sql="SELECT pric FROM books"))
    assert wrong.status_code == HTTPStatus.BAD_REQUEST
    assert wrong.parsed.error.code == "UNKNOWN_COLUMN" and wrong.parsed.error.position.column == 8, wrong
    missing = get_query.sync("none", client=client)
    assert isinstance(missing, ErrorReply) and missing.error.code == "NOT_FOUND"
    invalid = list_queries.sync(client=client, limit=0)
    assert isinstance(invalid, ErrorReply) and invalid.error.code == "INVALID_BODY"

with Client(base_url=url) as stranger:
    refused = list_tables.sync(client=stranger)
    assert isinstance(refused, ErrorReply) and refused.error.code == "AUTHENTICATION_FAILED"
print("all answers were the expected ones")
"""


def main(arguments: list[str]) -> int:
    """Generate, and ask; returns 0 where all went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run_generated_client", description=__doc__)
    parser.add_argument("--tool", type=Path, help="The program; without it, one is installed for this run.")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="generated-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        tool = chosen.tool or installed(work / "environment", "openapi-python-client")
        with serving(work) as url:
            login = httpx.BasicAuth(USER, PASSWORD)
            document = httpx.get(f"{url}/openapi.json", auth=login).raise_for_status()
            (work / "openapi.json").write_bytes(document.content)
            command = [str(tool), "generate", "--path", "openapi.json", "--output-path", PACKAGE, "--meta", "none"]
            told = subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout
            print(told)
            (work / "asking.py").write_text(ASKING, encoding="utf-8")
            token = document.request.headers["Authorization"].removeprefix("Basic ")
            python = [str(tool.with_name("python")), "asking.py", url, token]
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            return subprocess.run(python, cwd=work, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
