"""Somebody without a login, or one user, does the worst to the doors; another user asks ``SELECT 1``.

Requests that are large before their sender is known, bodies with hundreds of thousands of fields, a file with 100,000
columns, work that is no statement, planners, and a plan that no optimizer takes. With one process and with two. Others
run on the same machine as in ``attacks``, so the quiet run is printed beside.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import fastavro
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.attacks import LIVE_P95_S, QUERY_P95_S, QUIET, Attacker, Suffered, show, suffer
from benchmarks.claim import Claim, at_most, conditions, run_command, step
from gateway.security.authentication import user_line
from gateway.security.principals import Role
from tests.attacks.doors import Served, served

ANN, MALLORY = ("ann", "a quiet word"), ("mallory", "another one")
MEMORY_MIB = 1.5 * 1_024
PROCESSES = (1, 2)
CONNECTIONS, BODY_BYTES = 223, 6_000_000
SETTINGS, WRONG_COLUMNS, AVRO_COLUMNS = 300_000, 700_000, 100_000
KEY_REQUESTS, KEY_STATEMENTS = 110, 2_000
CONDITIONS, GROUP, JOINS = 2_800, 100, 8  # 50 kB of text


def run(
    seconds: Annotated[float, typer.Option(help="How long each attack goes on.")] = 15.0,
    only: Annotated[list[str] | None, typer.Option(help="Attacks to run, instead of all.")] = None,
    processes: Annotated[list[int] | None, typer.Option(help="Processes of the gateway, instead of 1 and 2.")] = None,
) -> Claim:
    """Measure how long another user waits while each attack goes on, and the gateway's memory."""
    chosen = [name for name in ATTACKS if not only or name in only]
    suffered: dict[str, Suffered] = {}
    for count in processes or PROCESSES:
        with tempfile.TemporaryDirectory(prefix="fusion-bench-", ignore_cleanup_errors=True) as folder:
            work = Path(folder)
            users = _prepare(work)
            settings: dict[str, dict[str, Any]] = {
                "server": {"processes": count},
                "authentication": {"users_file": str(users), "anonymous": "never"},
                "catalog": {"roots": [str(work)]},
            }
            with suppress(AssertionError), served(work / "home", **settings) as gateway:  # one that is slow to end
                gateway.register("books", work / "books", *ANN)
                for name in (QUIET, *chosen):
                    step(f"{name}, {count} process(es): {seconds:.0f} s")
                    told = suffer(gateway, ATTACKS.get(name), seconds, attacker=MALLORY, victim=ANN)
                    suffered[f"{name}_{count}"] = told
                    _settle(gateway)
        show(suffered)
    print(conditions(seconds=seconds, connections=CONNECTIONS))
    figures = {f"{name}.query_p95_s": found.query_p95_s() for name, found in suffered.items()}
    figures |= {f"{name}.live_p95_s": found.live_p95_s() for name, found in suffered.items()}
    figures |= {f"{name}.memory_mib": found.memory_mib for name, found in suffered.items()}
    bounds = {"query_p95_s": QUERY_P95_S, "live_p95_s": LIVE_P95_S, "memory_mib": MEMORY_MIB}
    targets = {name: at_most(bounds[name.rpartition(".")[2]]) for name in figures if not name.startswith(QUIET)}
    return Claim("hostile_doors", figures, targets)


# ---------------------------------------------------------------------- attacks


def _bodies_before_login(attacker: Attacker) -> None:
    """Send bodies of 6 MB over many connections, again and again, without a login."""
    settings = ",".join(f'"s{number}":""' for number in range(BODY_BYTES // 12))
    body = f'{{"sql":"SELECT 1","settings":{{{settings}}}}}'.encode()
    url = httpx.URL(attacker.url)
    head = f"POST /v1/queries HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\n"
    message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def connection() -> None:
        while not attacker.end.is_set():
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                reader, writer = await asyncio.open_connection(url.host, url.port)
                try:
                    writer.write(message)
                    await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
                finally:
                    writer.close()
            await asyncio.sleep(0.01)

    async def all_connections() -> None:
        tasks = [asyncio.ensure_future(connection()) for _ in range(CONNECTIONS)]
        await asyncio.to_thread(attacker.end.wait)
        for task in tasks:
            task.cancel()

    asyncio.run(all_connections())


def _post(attacker: Attacker, clients: int, path: str, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    attacker.repeat(clients, lambda client, _: client.post(path, content=body, headers=headers))


def _many_settings(attacker: Attacker) -> None:
    body = {"sql": "SELECT 1", "settings": {f"s{number}": "" for number in range(SETTINGS)}}
    _post(attacker, 8, "/v1/queries", json.dumps(body).encode())


def _wrong_columns(attacker: Attacker) -> None:
    columns = b",".join([b'{"a":1}'] * WRONG_COLUMNS)
    _post(attacker, 4, "/v1/tables", b'{"name":"wrong","location":"/","columns":[' + columns + b"]}")


def _wide_avro(attacker: Attacker) -> None:
    body = {"name": "wide", "location": str(attacker.work / "wide"), "format": "avro"}
    _post(attacker, 4, "/v1/tables", json.dumps(body).encode())


def _many_keys(attacker: Attacker) -> None:
    statements = [f"SELECT count(*) FROM books a JOIN books b ON a.id = b.id + {n}" for n in range(KEY_STATEMENTS)]
    _post(attacker, KEY_REQUESTS, "/v1/stats/keys", json.dumps({"statements": statements}).encode())


def _planner_hog(attacker: Attacker) -> None:
    columns = ", ".join(f"sum(id + {i}) OVER (PARTITION BY id % {i + 2}) AS s{i}" for i in range(2_000))
    attacker.explain(12, lambda n: f"SELECT {columns} FROM books WHERE id > {n}")


def _conditions_over_joins(attacker: Attacker) -> None:
    joins = " ".join(f"JOIN books t{n} ON t0.id = t{n}.id" for n in range(1, JOINS + 1))

    def sql(number: int) -> str:
        single = [f"t{n % (JOINS + 1)}.id = {n + number}" for n in range(CONDITIONS)]
        groups = [f"({' OR '.join(single[start : start + GROUP])})" for start in range(0, CONDITIONS, GROUP)]
        return f"SELECT count(*) FROM books t0 {joins} WHERE {' OR '.join(groups)}"

    attacker.query(3, sql, engine="spark")


ATTACKS: Mapping[str, Callable[[Attacker], None]] = {
    "bodies_before_login": _bodies_before_login,
    "many_settings": _many_settings,
    "wrong_columns": _wrong_columns,
    "wide_avro": _wide_avro,
    "many_keys": _many_keys,
    "planner_hog": _planner_hog,
    "conditions_over_joins": _conditions_over_joins,
}


# ---------------------------------------------------------------------- the gateway


def _prepare(work: Path) -> Path:
    """Write the tables' files and the users; return the users file."""
    for name in ("books", "wide"):
        (work / name).mkdir()
    pq.write_table(pa.table({"id": pa.array(range(1_000), pa.int64())}), work / "books" / "part-0.parquet")
    fields = [{"name": f"c{number}", "type": "int"} for number in range(AVRO_COLUMNS)]
    with (work / "wide" / "part-0.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "wide", "fields": fields}, [])
    users = work / "users"
    users.write_text("\n".join(user_line(*user, Role.WRITER) for user in (ANN, MALLORY)), encoding="utf-8")
    users.chmod(0o600)
    return users


def _settle(gateway: Served) -> None:
    """Cancel what an attack left, and wait until the other user is answered."""
    with gateway.http(*MALLORY) as client, suppress(httpx.HTTPError):
        for query in client.get("/v1/queries", params={"limit": 200}).json().get("queries", ()):
            if query["state"] in ("QUEUED", "RUNNING"):
                client.delete(f"/v1/queries/{query['id']}")
    with gateway.http(*ANN) as client:
        client.post("/v1/queries", json={"sql": "SELECT 1"}).raise_for_status()


if __name__ == "__main__":
    run_command(run)
