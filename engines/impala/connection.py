"""One session on one coordinator, through impyla. Exceptions of the driver pass through."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from impala._thrift_api import (  # type: ignore[import-untyped]
    ThriftClient,
    get_http_transport,
    get_socket,
    get_transport,
)
from impala._thrift_gen.TCLIService.ttypes import (  # type: ignore[import-untyped]
    TFetchOrientation,
    TFetchResultsReq,
    TOperationState,
)
from impala.error import Error as ImpylaError  # type: ignore[import-untyped]
from impala.hiveserver2 import HS2Service, err_if_rpc_not_ok  # type: ignore[import-untyped]
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated  # type: ignore[import-untyped]
from thrift.Thrift import TException  # type: ignore[import-untyped]
from thrift.transport.TTransport import TTransportBase  # type: ignore[import-untyped]

from engines.server_access import ServerAccess, kerberos_errors

# It prints a trace for every call that fails, which is told once, by the adapter.
logging.getLogger("impala.hiveserver2").disabled = True

Address: TypeAlias = tuple[str, int]
RUNNING = frozenset({TOperationState.INITIALIZED_STATE, TOperationState.RUNNING_STATE, TOperationState.PENDING_STATE})
FAILED = TOperationState.ERROR_STATE
ACTING_FOR = "impala.doas.user"


class Auth(StrEnum):
    """How the gateway logs in."""

    NOSASL = "nosasl"
    PLAIN = "plain"
    LDAP = "ldap"
    GSSAPI = "gssapi"


@dataclass(frozen=True, slots=True, repr=False)
class Access(ServerAccess):
    """How coordinators let the gateway in.

    auth: GSSAPI takes its ticket from the cache of the process. timeout_s: longest wait for one answer.
    """

    auth: Auth = Auth.NOSASL
    kerberos_service: str = "impala"
    timeout_s: float = 60.0


class Connection:
    """A session, for one statement at a time. Only ``break_off`` may be called from another thread.

    user: user as whom its statements run; None: the gateway's own.
    broken: that nothing more is to be asked of it; impyla would connect anew, and wait once more for an answer.
    """

    def __init__(self, address: Address, access: Access, user: str | None = None) -> None:
        self.address = address
        self.user = user
        self.idle_since_s = time.monotonic()
        self.broken = False
        self._http: Any = None
        self._socket: Any = None
        self._transport = self._transport_for(access)
        self._service = HS2Service(ThriftClient(TBinaryProtocolAccelerated(self._transport)), retries=1)
        try:
            self._transport.open()
            configuration = {"use:database": access.database, "CLIENT_IDENTIFIER": "fusion-sql-gateway"}
            if user is not None:
                configuration[ACTING_FOR] = user
            self._session = self._service.open_session(access.user, configuration)
        except (ImpylaError, TException, OSError, *kerberos_errors()):
            self._close_transport()
            raise

    def start(self, sql: str, options: Mapping[str, str]) -> Operation:
        """Send a statement with its query options; returns once it is planned."""
        return Operation(self._session.execute(sql, dict(options), run_async=True))

    def alive(self) -> bool:
        """Ask whether the coordinator still knows the session."""
        try:
            return bool(self._session.ping())
        except (ImpylaError, TException, OSError):
            return False

    def close(self) -> None:
        """Give the session back. A coordinator that is gone does not matter."""
        with contextlib.suppress(ImpylaError, TException, OSError):
            if not self.broken:
                self._session.close()
        self._close_transport()

    def break_off(self) -> None:
        """Cut the connection under whatever call is waiting on it."""
        self.broken = True
        client = getattr(self._http, "_ImpalaHttpClient__http", None)  # a new one for each call, and kept to itself
        opened = client.sock if client is not None else self._socket and self._socket.handle
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _close_transport(self) -> None:
        with contextlib.suppress(TException, OSError):
            if self._transport.isOpen():  # a call that failed has closed it
                self._transport.close()

    def _transport_for(self, access: Access) -> TTransportBase:
        host, port = self.address
        timeout_ms = access.timeout_s * 1000.0
        if access.http_path is None:
            self._socket = get_socket(host, port, access.tls, access.ca_file, access.verify)
            self._socket.setTimeout(timeout_ms)
            return get_transport(
                self._socket, host, access.kerberos_service, access.auth.name, access.user, access.password
            )
        transport = get_http_transport(
            host,
            port,
            access.http_path,
            use_ssl=access.tls,
            ca_cert=access.ca_file,
            verify_cert=access.verify,
            auth_mechanism=access.auth.name,
            user=access.user,
            password=access.password,
            kerberos_host=host,
            kerberos_service_name=access.kerberos_service,
            http_cookie_names="*",
        )
        self._http = transport._TBufferedTransport__trans  # impyla sets no limit of time on HTTP by itself
        self._http.setTimeout(timeout_ms)
        return transport


class Operation:
    """A statement on its coordinator."""

    def __init__(self, operation: Any) -> None:
        self._operation = operation

    def state(self) -> tuple[int, str]:
        """Return the operation's state and, where it failed, Impala's text."""
        answer = self._operation.get_state()
        return answer.operationState, answer.errorMessage or ""

    def columns(self) -> list[tuple[Any, ...]]:
        """Return name, type and, of a decimal, precision and scale at positions 4 and 5, per column."""
        schema: list[tuple[Any, ...]] = self._operation.get_result_schema() or []
        return schema

    def fetch(self, rows: int) -> tuple[Any, bool]:
        """Return the next rows as they came, a TRowSet or None, and whether there may be more."""
        request = TFetchResultsReq(self._operation.handle, TFetchOrientation.FETCH_NEXT, rows)
        answer = self._operation._rpc("FetchResults", request)  # its own fetch turns every value into an object
        err_if_rpc_not_ok(answer)
        return answer.results, bool(answer.hasMoreRows)

    def profile(self) -> str:
        """Return the text of the runtime profile."""
        return str(self._operation.get_profile() or "")

    def summary(self) -> Any:
        """Return the TExecSummary."""
        return self._operation.get_summary()

    def close(self) -> None:
        """Let go of the statement, which stops it if it still runs."""
        self._operation.close()
