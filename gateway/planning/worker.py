"""Program of a planner process: it runs one function after the other, each within limits of processor time and memory.

    python -m gateway.planning.worker FILE_DESCRIPTOR

What comes through the socket is pickled by the gateway that started the process, and by nobody else. A function that
has used up its time is stopped by an exception; where that is not heard, in the middle of one call of a library, the
kernel ends the process a second of processor time later. With the gateway the process ends at once, whatever it does:
a commit that came after a killed gateway's statement was given up would be one that nobody expects.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import select
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from engines.errors import EngineError
from gateway.planning.messages import Call, ForgetValues, Outcome, ReplaceMapping, SharedValue, ShareValue
from sql.errors import SqlError, StatementTooDeep

GRACE_S = 1  # of processor time, between the exception and the kernel
FRAMES_TOLD = 40  # of each error in a chain
LONGEST_TOLD = 16 << 10  # characters of a defect
NICE = 5  # so that statements which keep all planners busy do not keep the gateway from answering
PARENT_CHECK_MS = 1_000  # a process that the gateway forked may hold the socket open after the gateway's end
RECURSION_LIMIT = 12_000  # Python frames, as the parser sets it

EXPECTED = (SqlError, EngineError)
BEGUN = pickle.dumps((Outcome.BEGUN, None), protocol=pickle.HIGHEST_PROTOCOL)


class TimeSpent(BaseException):
    """A function has used up its processor time. No handler of errors on its way is meant."""


def serve(channel: Connection) -> None:
    """Run calls until the gateway closes the channel."""
    shared_values: dict[int, Any] = {}
    base_bytes = _address_space_bytes()
    while True:
        try:
            message = pickle.loads(channel.recv_bytes())  # noqa: S301 - of the process that started this one
        except EOFError:
            return
        match message:
            case ShareValue(key, value):
                shared_values[key] = value
            case ReplaceMapping(key, before, changed, gone):
                mapping = shared_values.pop(before)
                mapping.update(changed)
                for name in gone:
                    del mapping[name]
                shared_values[key] = mapping
            case ForgetValues():
                shared_values.clear()
            case Call():
                channel.send_bytes(BEGUN)
                outcome, value = _run(message, shared_values)
                channel.send_bytes(pickle.dumps((outcome, value), protocol=pickle.HIGHEST_PROTOCOL))
                del value
                if outcome is Outcome.TOO_LARGE or _address_space_bytes() > base_bytes + message.memory_bytes:
                    return  # allocators, threads and libraries keep what they took; another process begins anew
            case _:
                raise TypeError(f"unknown message {message!r}")


def _run(call: Call, shared_values: Mapping[int, object]) -> tuple[Outcome, object]:
    arguments = [
        shared_values[argument.key] if isinstance(argument, SharedValue) else argument for argument in call.arguments
    ]
    try:
        _limit(call.cpu_s, _address_space_bytes() + call.memory_bytes)
        try:
            value = call.function(*arguments)
        finally:
            _unlimit()
    except TimeSpent:
        _unlimit()
        return Outcome.TOO_LONG, None
    except MemoryError:
        return Outcome.TOO_LARGE, None
    except EXPECTED as error:
        return Outcome.FAILED, error.with_traceback(None)
    except RecursionError:
        return Outcome.FAILED, StatementTooDeep("The statement is nested too deep to be planned; write it in parts.")
    except BaseException as error:
        return Outcome.DEFECT, described(error)
    return Outcome.DONE, value


def described(error: BaseException) -> str:
    """Return an error with its innermost frames: of a recursion, all of them would be megabytes."""
    return "".join(traceback.format_exception(error, limit=-FRAMES_TOLD))[-LONGEST_TOLD:]


def _limit(cpu_s: float, memory_bytes: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = used.ru_utime + used.ru_stime
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(spent_s + cpu_s) + GRACE_S
    resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
    _cap(memory_bytes)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _unlimit() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    _cap(resource.RLIM_INFINITY)


def _cap(memory_bytes: int) -> None:
    """Hold the process's address space below a limit; only where it can be measured (Linux)."""
    if sys.platform == "linux":
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:  # an administrator's limit, which stays above ours
            memory_bytes = most if memory_bytes == resource.RLIM_INFINITY else min(memory_bytes, most)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, most))


def _address_space_bytes() -> int:
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    return 0


def _end_with_gateway(descriptor: int) -> None:
    """End the process once the gateway's end of the socket is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})  # it is for the thread that runs functions
    parent, closed = os.getppid(), select.poll()
    closed.register(descriptor, select.POLLHUP)
    while not closed.poll(PARENT_CHECK_MS) and os.getppid() == parent:
        pass
    os._exit(1)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeSpent


def main() -> None:
    """Serve the socket whose file descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the gateway; it ends us
    signal.signal(signal.SIGPROF, _stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICE)
    sys.setrecursionlimit(RECURSION_LIMIT)
    descriptor = int(sys.argv[1])
    threading.Thread(target=_end_with_gateway, args=(descriptor,), daemon=True).start()
    serve(Connection(descriptor))


if __name__ == "__main__":
    main()
