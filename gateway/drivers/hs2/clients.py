"""Which dialect a driver speaks, told by what it sends without being asked.

All of Impala's ask for V6 of the protocol and send no password in OpenSession, where they need none. impala-shell and
impyla (with ibis, and Superset's and SQLAlchemy's `impala://`) send no configuration either; PyHive and JDBC always do.
With a configuration impyla is known by its first statement: it is generated from Impala's own TCLIService, which has no
`queryTimeout` there, while all that is generated from Hive's sends one. Old drivers of Hive do not; they name a
database, or a setting, as they open a session. Over HTTP the user agent tells sooner, and so does `impala.doas.user`.
"""

from __future__ import annotations

from gateway.drivers.hs2.protocol.messages import ExecuteRequest, OpenSessionRequest
from gateway.sql.dialects.names import IMPALA, SPARK

IMPALAS_VERSION = 5  # V6 of the protocol
IMPALAS_AGENTS = ("python/impalahttpclient", "python/impylahttpclient")
OF_IMPALA = "impala."
OF_HIVE = ("use:", "set:")


def dialect_at_opening(request: OpenSessionRequest, agent: str) -> str | None:
    """Return the dialect that a client speaks, None where its first statement is going to tell. agent: over HTTP."""
    told = request.configuration
    if agent.lower().startswith(IMPALAS_AGENTS) or any(name.startswith(OF_IMPALA) for name in told or ()):
        return IMPALA
    if request.version != IMPALAS_VERSION or request.password is not None:
        return SPARK
    if told is None:
        return IMPALA
    return SPARK if any(name.startswith(OF_HIVE) for name in told) else None


def dialect_at_first(request: ExecuteRequest) -> str:
    """Return the dialect of a client that did not tell it before its first statement."""
    return IMPALA if request.timeout_s is None else SPARK
