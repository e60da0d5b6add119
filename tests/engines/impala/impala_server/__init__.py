"""A server that speaks Impala's HiveServer2 dialect over the wire and runs the SQL on DuckDB.

It stands in for an Impala where none can run: clients, framing, sessions, query options, texts of plans, profiles and
errors are Impala's; planner, executors and memory are DuckDB's.
"""

from tests.engines.impala.impala_server.server import ImpalaServer

__all__ = ["ImpalaServer"]
