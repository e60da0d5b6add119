"""Objects of one process that other processes of the same user call, over a Unix socket in a private folder.

A call is a request and a reply on a connection of the caller. A held object, such as a lease, belongs to the
connection: when the caller dies, the kernel closes the connection, and the object is released.

Both ends are processes of one gateway, in one release, and no client sends bytes here: calls are pickled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

BACKLOG = 256
RELEASE = "release"
STEP_S = 0.1  # between two checks of a wait

Function = Callable[..., Any]
Holder = Callable[..., AbstractContextManager[tuple[Any, Mapping[str, Function]]]]


class HostGone(ConnectionError):
    """The process at the other end has ended."""


@dataclass(frozen=True, slots=True)
class SocketFolder:
    """A private folder of sockets, addressed by its descriptor: a path may be too long for a socket.

    descriptor: open while the process lives.
    """

    descriptor: int

    @classmethod
    def opened(cls, folder: Path) -> SocketFolder:
        """Open an existing folder."""
        return cls(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def path(self, name: str) -> str:
        """Return the path by which this process reaches a socket."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def listening(self, name: str) -> socket.socket:
        """Listen on a socket, and replace one of a dead process."""
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(path)
        bound.listen(BACKLOG)
        return bound


class Host:
    """Serves functions and held objects by name; each connection has a thread. Ends with the process.

    functions: called with the caller's arguments.
    holders: context managers that hold an object. Their first argument is a function that returns True once the caller
        has given up, the others are the caller's. They yield a description of the object for the caller, and the
        functions that it may call while the object is held.
    """

    def __init__(self, path: str, functions: Mapping[str, Function], holders: Mapping[str, Holder]) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = Listener(path, "AF_UNIX", backlog=BACKLOG)
        self._functions = dict(functions)
        self._holders = dict(holders)

    def start(self) -> None:
        """Start to accept calls."""
        threading.Thread(target=self._accept, name="sharing", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.warning("cannot accept a call of another process: %s", error)  # mostly too many open files
                time.sleep(STEP_S)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="sharing call", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                name, arguments = connection.recv()
                if name in self._functions:
                    _answer(connection, self._functions[name], arguments)
                else:
                    self._hold(connection, self._holders[name], arguments)

    def _hold(self, connection: Connection, holder: Holder, arguments: tuple[Any, ...]) -> None:
        """Hold an object until the caller releases it, or is gone. Raises EOFError, OSError."""
        with contextlib.ExitStack() as held:
            try:
                description, functions = held.enter_context(holder(partial(connection.poll, 0), *arguments))
            except Exception as error:  # raised in the caller
                connection.send((False, error))
                return
            connection.send((True, description))
            while True:
                name, arguments = connection.recv()
                if name == RELEASE:
                    break
                _answer(connection, functions[name], arguments)
        connection.send((True, None))


def _answer(connection: Connection, function: Function, arguments: tuple[Any, ...]) -> None:
    try:
        reply = True, function(*arguments)
    except Exception as error:  # raised in the caller
        reply = False, error
    connection.send(reply)


def _wait_on() -> None:
    """Wait without a limit."""


class Caller:
    """Calls the functions of another process. Thread-safe: each running call has its own connection."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function; its errors are raised here. Raises HostGone."""
        with self._connection() as connection:
            return _call(connection, name, *arguments)

    @contextlib.contextmanager
    def held(
        self, name: str, *arguments: Any, give_up: Callable[[], None] = _wait_on
    ) -> Iterator[tuple[Any, Function]]:
        """Hold an object; yield its description, and a function that calls its functions by name. Raises HostGone.

        One call at a time, and none after the end.

        give_up: called repeatedly during the wait for the object; its error ends the wait.
        """
        with self._connection() as connection:
            description = _call(connection, name, *arguments, give_up=give_up)
            try:
                yield description, partial(_call, connection)
            finally:
                _call(connection, RELEASE)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Yield a connection, and keep it for the next call unless it is closed."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            try:
                connection = Client(self._path, "AF_UNIX")
            except OSError as error:
                raise HostGone(f"nobody listens at {self._path}") from error
        try:
            yield connection
        finally:
            if not connection.closed:
                with self._lock:
                    self._idle.append(connection)


def _call(connection: Connection, name: str, *arguments: Any, give_up: Callable[[], None] = _wait_on) -> Any:
    """Return the reply to one call. A connection without a reply, for any reason, is closed."""
    is_answered = False
    try:
        connection.send((name, arguments))
        while give_up is not _wait_on and not connection.poll(STEP_S):
            give_up()  # the other process sees the end of the connection
        good, reply = connection.recv()
        is_answered = True
    except (EOFError, OSError) as error:
        raise HostGone("the other process has ended") from error
    finally:
        if not is_answered:
            connection.close()
    if good:
        return reply
    raise reply


def part_of(of_all: int, processes: int) -> int:
    """Return one process's part of a number, rounded up."""
    return -(-of_all // processes)
