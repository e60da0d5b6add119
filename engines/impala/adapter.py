"""Impala: a fast engine on a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field, SecretStr

from engines.adapter import (
    BuiltEngine,
    CheckResult,
    EngineContext,
    EngineSettings,
    HostPort,
    Size,
    package,
    split_address,
)
from selector.forecast.seconds import Speed

SPEED = Speed(start_s=0.3, operator_s=0.05, rows_per_s=50e6, miss_s=34.0)  # the paper's Q8 ran out of memory after 34 s


class ImpalaSettings(EngineSettings):
    """Impala as the fast engine, in the place of DuckDB."""

    enabled: bool = False
    """Statements may run on Impala."""
    coordinators: tuple[HostPort, ...] = Field(("localhost:21050",), min_length=1)
    """host:port of HiveServer2 on each coordinator; statements take turns over those that answer."""
    database: str = Field("fusion", pattern=r"^\w+$")
    """Database in which the gateway declares its tables; tables that it finds there are used as they are."""
    auth: Literal["nosasl", "plain", "ldap", "gssapi"] = "nosasl"
    """How the gateway logs in; gssapi is Kerberos, with the ticket of the gateway's process."""
    user: str = "fusion"
    """User as whom the gateway logs in."""
    run_as: Literal["service", "user"] = "service"
    """User as whom users' statements run there: `service`, the one above; `user`, the one who logged in here."""
    password: SecretStr | None = None
    """Password of that user, for plain and ldap."""
    kerberos_service: str = "impala"
    """Kerberos service of the coordinators' principals."""
    http_path: str | None = None
    """Path of HiveServer2 over HTTP, such as cliservice; without it, the binary protocol."""
    tls: bool = False
    """Whether connections are encrypted."""
    ca_file: Path | None = None
    """Certificates that the coordinators' must be signed by; without it, those that the system trusts."""
    verify: bool = True
    """Whether the coordinators' certificates are verified."""
    memory_limit: Size = Field(ByteSize(2 << 30), ge=32 << 20)
    """Memory per host that one statement may take, as MEM_LIMIT."""
    hosts: int = Field(1, ge=1)
    """Executors that take part in a statement, where its plan does not tell."""
    mt_dop: int = Field(0, ge=0, le=64)
    """Threads of each fragment on each host, as MT_DOP."""
    slots: int = Field(8, ge=1)
    """Statements at once; below the admission pool's own limit, so that queues form here."""
    request_pool: str | None = None
    """Admission pool; without it, Impala chooses by the user."""
    options: dict[str, str] = Field(default_factory=dict)
    """Further query options by name."""
    refresh_s: float = Field(60.0, ge=0.0)
    """How old Impala's list of a table's files may be when a statement names it."""
    check_s: float = Field(15.0, gt=0.0)
    """Time between two looks at every coordinator."""
    timeout_s: float = Field(60.0, gt=0.0)
    """Longest wait for one answer of a coordinator."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each coordinator."""
        return [split_address(coordinator) for coordinator in self.coordinators]


class ImpalaAdapter:
    """Implements ``Adapter``."""

    section = "impala"
    product = "Impala"
    extra = "impala"
    rank = 20
    settings = ImpalaSettings

    def build(self, settings: ImpalaSettings, around: EngineContext) -> BuiltEngine:
        """Look for coordinators, in the background. Raises ImportError."""
        from engines.impala.connection import Access, Auth
        from engines.impala.engine import ImpalaEngine

        access = Access.of(settings, auth=Auth(settings.auth))
        engine = ImpalaEngine(
            settings.addresses,
            access,
            slots=settings.slots,
            mt_dop=settings.mt_dop,
            request_pool=settings.request_pool,
            options=settings.options,
            refresh_s=settings.refresh_s,
            check_s=settings.check_s,
            acts_for_users=settings.run_as == "user",
        )
        limit_bytes = int(settings.memory_limit)
        return BuiltEngine(engine, limit_bytes, threads=max(1, settings.mt_dop), hosts=settings.hosts, speed=SPEED)

    def findings(self, settings: ImpalaSettings) -> Iterator[CheckResult]:
        """Look for the driver, for a password where one is needed, and for each coordinator."""
        impyla = package("impyla", "impala", self.extra)
        yield impyla
        if not impyla.good:
            return
        if settings.auth == "ldap" and settings.password is None:
            yield CheckResult("Impala login", False, "auth is ldap, without a password", "set impala.password")
            return
        from engines.impala.connection import Access, Auth
        from engines.impala.coordinators import Coordinator

        access = Access.of(settings, auth=Auth(settings.auth))
        for address in settings.addresses:
            coordinator = Coordinator(address, access)
            coordinator.check()
            good = bool(coordinator.answers)
            detail = f"{coordinator} answers" if good else coordinator.last_failure
            yield CheckResult("Impala coordinator", good, detail, "look at impala.coordinators, auth and tls")
            coordinator.close()

    def memory_bytes(self, settings: ImpalaSettings) -> int:
        """Return zero: its memory is elsewhere."""
        return 0


ADAPTER = ImpalaAdapter()
