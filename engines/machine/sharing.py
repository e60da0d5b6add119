"""Objects of one process that other processes of the same user call, over a Unix socket in a private folder.

A call is a request and a reply on a connection of the caller's. What is held, such as a lease, is held by the
connection: when the caller dies, the kernel ends the connection, and what it held is given back.

Both ends are processes of one gateway, in one release, and no client's bytes come this way: calls are pickled.
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
STEP_S = 0.1  # between two looks at whether a wait is given up

Function = Callable[..., Any]
Holder = Callable[..., AbstractContextManager[tuple[Any, Mapping[str, Function]]]]


class HostGone(ConnectionError):
    """Nobody answers any more at the other end: that process has ended."""


@dataclass(frozen=True, slots=True)
class SocketFolder:
    """A private folder of sockets, by whose descriptor they are named: a path of any length is too long for a socket.

    descriptor: of the folder, open as long as the process lives.
    """

    descriptor: int

    @classmethod
    def opened(cls, folder: Path) -> SocketFolder:
        """Open a folder that is there."""
        return cls(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def path(self, name: str) -> str:
        """Return by which path this process reaches a socket."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def listening(self, name: str) -> socket.socket:
        """Listen on a socket, in the place of one that a dead process left."""
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(path)
        bound.listen(BACKLOG)
        return bound


class Host:
    """Serves functions, and what can be held, by name; each connection has a thread. Ends with the process.

    functions: called with what the caller gave. holders: called with that after something that tells whether the caller
    has given up; they hold something, and yield what the caller is told of it with the functions that it may call
    meanwhile.
    """

    def __init__(self, path: str, functions: Mapping[str, Function], holders: Mapping[str, Holder]) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = Listener(path, "AF_UNIX", backlog=BACKLOG)
        self._functions = dict(functions)
        self._holders = dict(holders)

    def start(self) -> None:
        """Begin to take calls."""
        threading.Thread(target=self._accept, name="sharing", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.warning("cannot take a call of another process: %s", error)  # out of files, mostly; it passes
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
        """Hold something until the caller gives it back, or is gone. Raises EOFError, OSError."""
        with contextlib.ExitStack() as held:
            try:
                told, functions = held.enter_context(holder(partial(connection.poll, 0), *arguments))
            except Exception as error:  # it is the caller's, and is raised there
                connection.send((False, error))
                return
            connection.send((True, told))
            while True:
                name, arguments = connection.recv()
                if name == RELEASE:
                    break
                _answer(connection, functions[name], arguments)
        connection.send((True, None))


def _answer(connection: Connection, function: Function, arguments: tuple[Any, ...]) -> None:
    try:
        reply = True, function(*arguments)
    except Exception as error:  # it is the caller's, and is raised there
        reply = False, error
    connection.send(reply)


def _wait_on() -> None:
    """Give up nothing."""


class Caller:
    """Calls what another process serves. Thread-safe: each call that is under way has a connection of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function; what it raises is raised here. Raises HostGone."""
        with self._connection() as connection:
            return _asked(connection, name, arguments)

    @contextlib.contextmanager
    def held(
        self, name: str, *arguments: Any, give_up: Callable[[], None] = _wait_on
    ) -> Iterator[tuple[Any, Function]]:
        """Hold something, and yield what is told of it and what calls its functions by name. Raises HostGone.

        One call at a time, and none after the end. give_up: asked while it is waited for; raises what ends the wait.
        """
        with self._connection() as connection:
            told = _asked(connection, name, arguments, give_up)
            try:
                yield told, partial(_called, connection)
            finally:
                _asked(connection, RELEASE, ())

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Yield a connection, which is kept for the next call unless it broke."""
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


def _called(connection: Connection, name: str, *arguments: Any) -> Any:
    return _asked(connection, name, arguments)


def _asked(
    connection: Connection, name: str, arguments: tuple[Any, ...], give_up: Callable[[], None] = _wait_on
) -> Any:
    """Return the reply to one call. A connection on which none came, for whatever reason, is closed."""
    is_answered = False
    try:
        connection.send((name, arguments))
        while give_up is not _wait_on and not connection.poll(STEP_S):
            give_up()  # the other process knows of it as the connection ends
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
    """Return how many of the machine's are one process's, so that all together have at least as many."""
    return -(-of_all // processes)
