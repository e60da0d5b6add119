"""A client of our own for what no driver sends: calls byte by byte, over a socket that it may break."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.hs2_client import RawClient, call_bytes, reply_of, success_of
from tests.gateway.drivers.hs2.conftest import Drivers

__all__ = ["Client", "broken", "call_bytes", "reply_of", "success_of"]

TIMEOUT_S = 20.0


class Client(RawClient):
    """One connection to a gateway."""

    def __init__(self, drivers: Drivers, *, user: str | None = "joe", password: str = "any") -> None:  # noqa: S107
        super().__init__(drivers.host, drivers.port, user=user, password=password, timeout_s=TIMEOUT_S)

    def is_closed(self) -> bool:
        """Read to the end of what the server has to say; returns whether it closed the connection."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


def broken(calls: Sequence[bytes]) -> list[bytes]:
    """Return each call cut off at every place."""
    return [call[:end] for call in calls for end in range(len(call))]
