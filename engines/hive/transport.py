"""Transports to a HiveServer2: sockets with or without SASL and TLS, or HTTP, with the gateway's login.

PyHive's own transports have no timeouts, no TLS on sockets, and a new HTTP connection for each call; it uses these
instead. SASL and Kerberos are PyHive's.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import logging
import socket
import ssl
from dataclasses import dataclass
from enum import StrEnum
from http.cookies import SimpleCookie
from typing import Any, TypeAlias

from pyhive.hive import Connection, get_installed_sasl  # type: ignore[import-untyped]
from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
from thrift.transport.TTransport import (  # type: ignore[import-untyped]
    TBufferedTransport,
    TTransportBase,
    TTransportException,
)
from thrift_sasl import TSaslClientTransport  # type: ignore[import-untyped]

from engines.server_access import ServerAccess

Address: TypeAlias = tuple[str, int]

CONNECT_TIMEOUT_S = 30.0
"""Timeout of a connection and its session: a server may start processes for a session, or still warm up."""

for _logger in ("thrift.transport.TSocket", "thrift.transport.sslcompat"):
    logging.getLogger(_logger).disabled = True  # they print errors that they also raise


class Auth(StrEnum):
    """Values of the server's ``hive.server2.authentication``."""

    NONE = "NONE"
    LDAP = "LDAP"
    CUSTOM = "CUSTOM"
    NOSASL = "NOSASL"
    KERBEROS = "KERBEROS"


@dataclass(frozen=True, slots=True, repr=False)
class Access(ServerAccess):
    """The gateway's access to the servers."""

    auth: Auth = Auth.NONE
    kerberos_service: str = "hive"

    def __post_init__(self) -> None:
        if (self.auth in (Auth.LDAP, Auth.CUSTOM)) != (self.password is not None):
            raise ValueError("a password belongs to LDAP and CUSTOM, and they need one")


class Transport:
    """A connection to one server, not open yet. thrift: the transport for PyHive."""

    def __init__(self, address: Address, access: Access) -> None:
        host, port = address
        self._http: HttpTransport | None = None
        self._socket: Any = None
        if access.http_path is not None:
            self._http = HttpTransport(address, access)
            self.thrift: TTransportBase = TBufferedTransport(self._http)
            return
        self._socket = TlsSocket(address, access) if access.tls else TSocket(host, port, socket_keepalive=True)
        self._socket.setTimeout(CONNECT_TIMEOUT_S * 1000.0)
        self.thrift = (
            TBufferedTransport(self._socket) if access.auth is Auth.NOSASL else _sasl(self._socket, host, access)
        )

    def wait_up_to(self, seconds: float | None) -> None:
        """Set the timeout of each following answer; None: no limit."""
        if self._http is not None:
            self._http.wait_up_to(seconds)
        else:
            self._socket.setTimeout(None if seconds is None else seconds * 1000.0)

    def break_off(self) -> None:
        """Close the connection, also during a call."""
        opened = self._http.socket if self._http is not None else self._socket.handle
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


class TlsSocket(TSocket):  # type: ignore[misc]
    """A socket that verifies the server's certificate with Python's own rules."""

    def __init__(self, address: Address, access: Access) -> None:
        host, port = address
        super().__init__(host, port, socket_keepalive=True)
        self._context = _tls_context(access)

    def _do_open(self, family: socket.AddressFamily, kind: socket.SocketKind) -> ssl.SSLSocket:
        return self._context.wrap_socket(socket.socket(family, kind), server_hostname=self.host)


class HttpTransport(TTransportBase):  # type: ignore[misc]
    """Thrift messages as bodies of POST over one persistent connection, with the server's cookies."""

    def __init__(self, address: Address, access: Access) -> None:
        host, port = address
        self._path = f"/{(access.http_path or '').strip('/')}/"
        self._host = host
        self._access = access
        self._headers: dict[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._request, self._answer = io.BytesIO(), io.BytesIO()
        self._opened = False
        self._connection = (
            http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=_tls_context(access))
            if access.tls
            else http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
        )

    @property
    def socket(self) -> socket.socket | None:
        """The connection's socket while there is one."""
        sock: socket.socket | None = self._connection.sock
        return sock

    def wait_up_to(self, seconds: float | None) -> None:
        """Set the timeout of each following answer."""
        self._connection.timeout = seconds
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)

    def setCustomHeaders(self, headers: dict[str, str]) -> None:
        """Set the header with the gateway's login."""
        self._headers = headers

    def isOpen(self) -> bool:
        """Return True after ``open``."""
        return self._opened

    def open(self) -> None:
        """Connect."""
        if self._access.auth is Auth.KERBEROS:
            Connection._set_kerberos_header(self, self._access.kerberos_service, self._host)
        else:
            pair = f"{self._access.user}:{self._access.password or 'x'}"  # Hive refuses an empty password
            self._headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"}
        self._connection.connect()
        self._opened = True

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
        self._opened = False

    def read(self, size: int) -> bytes:
        """Return the next bytes of the answer."""
        return self._answer.read(size)

    def write(self, data: bytes) -> None:
        """Add to the request."""
        self._request.write(data)

    def flush(self) -> None:
        """Send the request and wait for the answer. Raises TTransportException unless its status is 200."""
        body, self._request = self._request.getvalue(), io.BytesIO()
        headers = {"Content-Type": "application/x-thrift", **self._headers}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise TTransportException(TTransportException.NOT_OPEN, f"HTTP {answer.status} {answer.reason}")
        for sent in answer.headers.get_all("Set-Cookie") or ():
            self._cookies.update({name: cookie.value for name, cookie in SimpleCookie(sent).items()})
        self._answer = io.BytesIO(content)


def _sasl(plain: TTransportBase, host: str, access: Access) -> TTransportBase:
    mechanism = "GSSAPI" if access.auth is Auth.KERBEROS else "PLAIN"
    return TSaslClientTransport(
        lambda: get_installed_sasl(
            host=host,
            sasl_auth=mechanism,
            service=access.kerberos_service,
            username=access.user,
            password=access.password or "x",  # ignored, but it must not be empty
        ),
        mechanism,
        plain,
    )


def _tls_context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file)
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
