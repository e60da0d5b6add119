"""Facts that every kind of object store says of itself, and what their locations have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import pyarrow.fs as pafs

CONNECT_S, REQUEST_S = 5.0, 10.0
"""Longest wait for a connection, and for the next bytes of an answer."""
TRIES = 4
"""Times that a request is sent, the first one included; 503 (SlowDown), 500 and lost connections are tried again."""
LONGEST_NAME = 255
"""Bytes of one step of a path, as file systems have it."""


class InvalidLocation(ValueError):
    """A location in an object store is not valid; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A prefix of an object store and how it is reached. Each kind has fields of its own beside these.

    prefix: such as ``s3://bucket/folder``, in its canonical form.
    endpoint: address of a store that is not its provider's own, such as ``http://127.0.0.1:9000``; "": the provider's.
    """

    prefix: str
    endpoint: str = ""

    SCHEMES: ClassVar[tuple[str, ...]]
    """Schemes of locations, in small letters, the canonical one first."""
    EXAMPLE: ClassVar[str]
    """A location, for messages."""
    CREDENTIALS: ClassVar[tuple[str, ...]]
    """Fields with credentials; "" in all of them stands for the machine's role."""
    PROPERTIES: ClassVar[Mapping[str, str]]
    """Fields by the names of pyiceberg's properties, as catalogs give them with a table."""
    DENIED: ClassVar[tuple[str, ...]]
    """Words in errors of requests whose credentials the store does not accept."""
    GONE: ClassVar[tuple[str, ...]] = ()
    """Words in errors of requests for what is not there."""
    ENDS: ClassVar[bool] = False
    """True where the library ends each request by itself, also one that a store does not answer."""

    @staticmethod
    def canonical(scheme: str, rest: str) -> str:
        """Return a location in its only form. rest: what follows ``scheme://``. Raises InvalidLocation."""
        raise NotImplementedError

    @staticmethod
    def key(location: str) -> str:
        """Return a canonical location as a path of the store's file system: ``bucket/a/b``."""
        return location.partition("://")[2]

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as a file system, for paths as ``key`` returns them. Raises OSError."""
        raise NotImplementedError

    def delta_options(self) -> dict[str, str]:
        """Return the options by which delta-rs reaches the store."""
        raise NotImplementedError

    def iceberg_properties(self) -> dict[str, str]:
        """Return the properties by which pyiceberg reaches the store."""
        return filled({name: getattr(self, field) for name, field in self.PROPERTIES.items()})

    @classmethod
    def of_properties(cls, location: str, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the fields that pyiceberg's properties give for a location."""
        return {field: properties[name] for name, field in cls.PROPERTIES.items() if properties.get(name)}

    @property
    def is_authorized(self) -> bool:
        """True where the store has credentials of its own."""
        return any(getattr(self, name) for name in self.CREDENTIALS)

    def holds(self, location: str) -> bool:
        """Return True for a location at the prefix or below it."""
        return location == self.prefix or location.startswith(f"{self.prefix.rstrip('/')}/")


def filled(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that have a value."""
    return {name: value for name, value in options.items() if value}


def delta_limits(endpoint: str) -> dict[str, str]:
    """Return delta-rs's options for time and tries, and for an endpoint without TLS."""
    return {
        "allow_http": "true" if endpoint.startswith("http:") else "",
        "timeout": f"{REQUEST_S:.0f}s",
        "connect_timeout": f"{CONNECT_S:.0f}s",
        "max_retries": str(TRIES - 1),
    }


def scheme_and_host(endpoint: str) -> tuple[str, str]:
    """Return an endpoint's scheme, and its host with the port."""
    scheme, _, host = endpoint.rstrip("/").partition("://")
    return scheme, host


def joined(root: str, path: str) -> str:
    """Return the location of a path below a root, such as ``s3://bucket``. Raises InvalidLocation."""
    steps = path.rstrip("/").split("/") if path else []
    require_steps(steps)
    return "/".join([root, *steps])


def require_steps(steps: Iterable[str]) -> None:
    """Raise InvalidLocation for steps of a path that no file system has."""
    for step in steps:
        if step in ("", ".", ".."):
            raise InvalidLocation("its path has an empty step, . or ..")
        if not step.isprintable():
            raise InvalidLocation(f"the step {step!r:.80} of its path has unprintable characters")
        if len(step.encode()) > LONGEST_NAME:
            raise InvalidLocation(f"the step {step:.40}... of its path has more than {LONGEST_NAME} bytes")
