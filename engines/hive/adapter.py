"""HiveServer2 servers as a dependable engine: Spark Thrift Server, Kyuubi, Hive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from engines.adapter import (
    BuiltEngine,
    CheckResult,
    EngineContext,
    EngineSettings,
    HostPort,
    ServerConfiguration,
    package,
    split_address,
)
from selector.forecast.seconds import Speed

SPEED = Speed(start_s=1.0, operator_s=0.5, rows_per_s=5e6)  # between Spark's Thrift server and Hive's own tasks


class HiveSettings(EngineSettings):
    """A dependable engine behind HiveServer2: Spark Thrift Server, Kyuubi or Hive."""

    enabled: bool = False
    """Statements may run on it."""
    addresses: tuple[HostPort, ...] = Field(("localhost:10000",), min_length=1)
    """host:port of each server; a statement goes to the one that answered last, or to the next that does."""
    dialect: Literal["spark", "hive"] = "spark"
    """SQL of the servers: spark for Spark Thrift Server and Kyuubi, hive for Hive."""
    tables: Literal["session", "metastore"] = "session"
    """session: views of the catalog's files in each session (spark only); metastore: the servers know the tables."""
    database: str = Field("default", pattern=r"^\w+$")
    """Database of unqualified names."""
    auth: Literal["none", "ldap", "custom", "nosasl", "kerberos"] = "none"
    """The servers' hive.server2.authentication; kerberos takes the ticket of the gateway's process."""
    user: str = "fusion"
    """User as whom the gateway logs in to HiveServer2."""
    run_as: Literal["service", "user"] = "service"
    """User as whom users' statements run there: `service`, the one above; `user`, the one who logged in here."""
    password: SecretStr | None = None
    """Password of that user, for ldap and custom."""
    kerberos_service: str = "hive"
    """Kerberos service of the servers' principals."""
    http_path: str | None = None
    """Path of the HTTP transport, such as cliservice; without it, the binary one."""
    tls: bool = False
    """Encrypt connections to HiveServer2."""
    ca_file: Path | None = None
    """Certificate authorities for the servers' certificates; without it, those that the system trusts."""
    verify: bool = True
    """Verify the servers' certificates."""
    slots: int = Field(4, ge=1)
    """Statements at once, and idle sessions that are kept."""
    whole_results: bool = False
    """Spark computes a whole result and holds it in its driver, instead of piece by piece while it is read."""
    session_settings: ServerConfiguration = Field(default_factory=dict)
    """Further settings of each session, by the servers' names."""
    idle_s: float = Field(300.0, gt=0.0)
    """Time after which an idle session is closed."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.tables == "session" and self.dialect != "spark":
            raise ValueError("only Spark has views over files: with dialect hive set tables to metastore")
        if self.enabled and (self.auth in ("ldap", "custom")) != (self.password is not None):
            raise ValueError("a password belongs to auth ldap and custom, and they need one")
        return self


class HiveAdapter:
    """Implements ``Adapter``."""

    section = "hive"
    product = "Hive"
    extra = "hive"
    rank = 40
    settings = HiveSettings

    def build(self, settings: HiveSettings, around: EngineContext) -> BuiltEngine:
        """Connect when first needed. Raises ImportError."""
        from engines.hive.engine import HiveEngine
        from engines.hive.transport import Access, Auth

        access = Access.of(settings, auth=Auth(settings.auth.upper()))
        engine = HiveEngine(
            [split_address(address) for address in settings.addresses],
            access,
            dialect=settings.dialect,
            tables=settings.tables,
            slots=settings.slots,
            whole_results=settings.whole_results,
            settings=settings.session_settings,
            idle_s=settings.idle_s,
            acts_for_users=settings.run_as == "user",
        )
        return BuiltEngine(engine, speed=SPEED)

    def findings(self, settings: HiveSettings) -> Iterator[CheckResult]:
        """Look for the driver, and for each server."""
        pyhive = package("PyHive", "pyhive", self.extra)
        yield pyhive
        if not pyhive.good:
            return
        from engines.hive.pool import answers

        for address in settings.addresses:
            good, detail = answers(split_address(address))
            yield CheckResult("Hive server", good, detail, "look at hive.addresses")

    def memory_bytes(self, settings: HiveSettings) -> int:
        """Return zero: it runs on other machines."""
        return 0


ADAPTER = HiveAdapter()
