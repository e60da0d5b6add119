"""Detection of a driver's dialect by the form of its calls.

All drivers of Impala ask for V6 of the protocol and send no password in OpenSession, where it is not needed.
impala-shell and impyla (with ibis, and Superset's and SQLAlchemy's `impala://`) send no configuration either; PyHive
and JDBC always do. If there is a configuration, impyla's first statement decides: impyla is generated from Impala's own
TCLIService, which has no `queryTimeout`, while drivers generated from Hive's send one. Old drivers of Hive do not; they
name a database or a setting in OpenSession. Over HTTP the user agent or `impala.doas.user` decides earlier.
"""

from __future__ import annotations

from gateway.drivers.hs2.protocol.messages import ExecuteRequest, OpenSessionRequest
from sql.dialects.names import IMPALA, SPARK

IMPALAS_VERSION = 5  # V6 of the protocol
IMPALAS_AGENTS = ("python/impalahttpclient", "python/impylahttpclient")
OF_IMPALA = "impala."
OF_HIVE = ("use:", "set:")


def dialect_at_opening(request: OpenSessionRequest, agent: str) -> str | None:
    """Return the dialect of a client; None: its first statement decides. agent: user agent, over HTTP."""
    configuration = request.configuration
    if agent.lower().startswith(IMPALAS_AGENTS) or any(name.startswith(OF_IMPALA) for name in configuration or ()):
        return IMPALA
    if request.version != IMPALAS_VERSION or request.password is not None:
        return SPARK
    if configuration is None:
        return IMPALA
    return SPARK if any(name.startswith(OF_HIVE) for name in configuration) else None


def dialect_at_first(request: ExecuteRequest) -> str:
    """Return the dialect of a client by its first statement."""
    return IMPALA if request.timeout_s is None else SPARK
