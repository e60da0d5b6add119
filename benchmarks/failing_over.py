"""A gateway over a real DuckDB and a real Spark, whose DuckDB runs out of memory with each statement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from engines.duckdb.engine import DuckDBEngine
from engines.errors import MemoryExceeded
from engines.protocol import Engine
from gateway.catalog.new_table import NewTable
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.security.access.rules import AccessRules
from gateway.security.principals import IN_PROCESS, Principal
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import load
from gateway.statements.statement import Statement
from metastore.records import QueryRecord, QueryState
from sql.tables import TableSource

LIMIT_BYTES = 256 << 20
MOST_ROWS = 1_000_000
DEADLINE_S = 300.0


class Full(DuckDBEngine):
    """A DuckDB that has planned a statement, and runs out of memory when it begins to run."""

    def execute(self, sql: str, **options: Any) -> NoReturn:
        """Raise MemoryExceeded."""
        raise MemoryExceeded("out of memory, for a benchmark", peak_bytes=LIMIT_BYTES)


class FailingOver:
    """Asks statements of a gateway whose first engine fails."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def ask(self, sql: str, user: Principal) -> tuple[QueryRecord, pa.Table | None]:
        """Return the record of a statement, and its rows; None where it failed. Raises SqlError."""
        run = self._gateway.coordinator.submit(Statement(sql=sql, principal=user))
        record = run.done.result(timeout=DEADLINE_S)
        if record.state is not QueryState.FINISHED:
            return record, None
        page = self._gateway.spool.page(record.id, max_rows=MOST_ROWS)
        return record, pa.Table.from_batches(page.batches, page.schema)


@contextmanager
def failing_over(home: Path, spark: Engine, tables: Sequence[TableSource], rules: AccessRules) -> Iterator[FailingOver]:
    """Serve tables by rules. home: folder for the gateway, which has no files yet."""
    home.mkdir()
    (home / "policy.toml").write_text(policy_text(rules))
    full = Full(workers=1, threads=1)
    engines = EngineRegistry([EngineEntry(full, limit_bytes=LIMIT_BYTES), EngineEntry(spark)])
    gateway = wiring.assemble(load(home, access={"policy_file": str(home / "policy.toml")}), engines)
    try:
        for table in tables:
            gateway.registration.add(NewTable(table.name, table.location), user=IN_PROCESS)
        gateway.catalog.current()
        yield FailingOver(gateway)
    finally:
        gateway.coordinator.stop(grace_s=10)
        gateway.planners.close()
        gateway.lake.close()
        gateway.objects.close()
        gateway.metastore.close()
        full.close()


def policy_text(rules: AccessRules) -> str:
    """Return rules as the text of a policy file."""
    lines = [f"closed = {json.dumps(rules.closed)}"]
    for grant in rules.grants:
        lines += ["[[grant]]", f"on = {json.dumps(grant.on)}", f"to = {json.dumps(sorted(grant.to))}"]
        lines += [f"privileges = {json.dumps(sorted(grant.privileges))}"]
        lines += [f"columns = {json.dumps(sorted(grant.columns))}"] * bool(grant.columns)
    for rule in rules.filters:
        lines += ["[[filter]]", f"on = {json.dumps(rule.on)}", f"to = {json.dumps(sorted(rule.to))}"]
        lines += [f"where = {json.dumps(rule.where)}"]
    for mask in rules.masks:
        lines += ["[[mask]]", f"on = {json.dumps(mask.on)}", f"to = {json.dumps(sorted(mask.to))}"]
        lines += [f"column = {json.dumps(mask.column)}", f"value = {json.dumps(mask.value)}"]
    return "\n".join(lines) + "\n"
