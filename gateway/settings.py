"""Typed settings: ``HOME/fusion.toml``, overridden by FUSION_* variables (FUSION_DUCKDB__WORKERS=4).

Read once, at the edge; everything below gets values.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from engines.as_written import first_conflict
from gateway.security.authentication import Anonymous
from gateway.security.principals import Role

DEFAULT_HOME = ".fusion"
FILE_NAME = "fusion.toml"


def _plain_size(value: Any) -> Any:
    """Read ``384 MiB`` and ``1_000`` alike."""
    return value.replace(" ", "").replace("_", "") if isinstance(value, str) else value


Size = Annotated[ByteSize, BeforeValidator(_plain_size)]


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address} is not host:port")
    return host.strip("[]"), int(port)


def _checked_address(address: str) -> str:
    split_address(address)
    return address


HostPort = Annotated[str, AfterValidator(_checked_address)]


def _without_conflict(settings: dict[str, str]) -> dict[str, str]:
    found = first_conflict(settings)
    if found is not None:
        name, needed = found
        raise ValueError(f"{name} must be {needed}, so that statements are read there as they were checked here")
    return settings


ServerConfiguration = Annotated[dict[str, str], AfterValidator(_without_conflict)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServerSettings(_Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback shows the endpoint to the network."""
    port: int = Field(8650, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    hosts: tuple[str, ...] = ()
    """Names of the HTTP server beside addresses, `localhost` and this machine's own; `*` for any."""
    origins: tuple[str, ...] = ()
    """Origins of pages elsewhere that may change something here, such as `https://notebook.example`."""
    cancel_wait_s: float = Field(10.0, ge=0.0)
    """How long a DELETE waits for the query's end."""


class TlsSettings(_Section):
    """Encryption of every port."""

    certificate: Path | None = None
    """Certificate with its chain, PEM; with one, HTTP becomes HTTPS and drivers must speak TLS."""
    key: Path | None = None
    """Private key of the certificate, PEM without a password; without it, the certificate's file holds it."""


class AuthenticationSettings(_Section):
    """Who may come in, over HTTP and with drivers alike."""

    users_file: Path | None = None
    """File of users, a line per user as `fusion password NAME` prints it; without it, nobody has a password."""
    anonymous: Anonymous = Anonymous.LOOPBACK
    """Who may come without a login: `never` anybody, `loopback` clients on this machine, `everywhere` all."""
    operators: tuple[str, ...] = ()
    """Users of the file with the role `operator`; the same as naming them in `roles`."""
    roles: dict[str, Role] = {}
    """Roles of users of the file whose line names none: `reader`, `writer`, `operator` or `admin`."""
    default_role: Role = Role.WRITER
    """Role of users of the file who have no other."""
    anonymous_role: Role | None = None
    """Role of clients without a login; by itself `reader` beside a users file, else `admin` here, `writer` afar."""


class Hs2Settings(_Section):
    """HiveServer2: the port of Hive's, Spark's and Impala's drivers, on the address of the HTTP server."""

    enabled: bool = True
    """Whether there is a port for drivers; over HTTP, `/cliservice` is always there."""
    port: int = Field(10_000, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    connections: int = Field(512, ge=1)
    """Connections at once; those that have opened no session give way to new ones."""
    sessions: int = Field(256, ge=1)
    """Sessions at once."""
    sessions_per_user: int = Field(64, ge=1)
    """Sessions at once of one user."""
    handshake_s: float = Field(10.0, gt=0.0)
    """How long a connection may take to say who it is and to open a session."""
    idle_s: float = Field(3600.0, gt=0.0)
    """How long a session may be idle before it is closed with all that it has under way."""
    drain_s: float = Field(5.0, ge=0.0)
    """How long the gateway waits at its end for statements of drivers that run."""


class FlightSettings(_Section):
    """Arrow Flight SQL: the port of ADBC and of Flight SQL's JDBC driver, on the address of the HTTP server."""

    enabled: bool = True
    """Whether there is a port for Flight SQL; it needs the extra `flight`."""
    port: int = Field(32_010, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    calls: int = Field(128, ge=8, le=4096)
    """Calls at once, of which each has a thread while it waits or reads; one user has half of them at most."""
    sessions: int = Field(256, ge=1)
    """Sessions at once."""
    sessions_per_user: int = Field(64, ge=1)
    """Sessions at once of one user."""
    idle_s: float = Field(3600.0, gt=0.0)
    """How long a session may be idle before it is closed with all that it has under way, and its results."""
    drain_s: float = Field(5.0, ge=0.0)
    """How long the gateway waits at its end for calls that run."""


class MetastoreSettings(_Section):
    """Where catalog, statistics and the query log live."""

    url: SecretStr | None = None
    """SQLAlchemy URL; without it, an SQLite file under the home folder."""


class DuckDBSettings(_Section):
    """The embedded fast engine."""

    enabled: bool = True
    """Whether statements may run on DuckDB."""
    workers: int = Field(2, ge=1, le=256)
    """Worker processes, which is statements at once."""
    threads: int | None = Field(None, ge=1)
    """Threads of each worker; without it, one per processor."""
    memory_limit: Size = Field(ByteSize(1 << 30), ge=16 << 20)
    """Memory that one statement may take. The sum over all workers should fit into the machine."""
    spare_workers: int = Field(1, ge=0, le=16)
    """Worker processes more, which stand ready to take the place of one that ends."""
    recycle_after: int = Field(1_000, ge=1)
    """Statements after which a worker is replaced by a new one."""
    recycle_growth: Size = Field(ByteSize(512 << 20), ge=64 << 20)
    """Memory that a worker may keep between statements beyond what a new one holds; then it is replaced."""


class ImpalaSettings(_Section):
    """Impala as the fast engine, in the place of DuckDB."""

    enabled: bool = False
    """Whether statements may run on Impala."""
    coordinators: tuple[HostPort, ...] = Field(("localhost:21050",), min_length=1)
    """host:port of HiveServer2 on each coordinator; statements take turns over those that answer."""
    database: str = Field("fusion", pattern=r"^\w+$")
    """Database in which the gateway declares its tables; tables that it finds there are used as they are."""
    auth: Literal["nosasl", "plain", "ldap", "gssapi"] = "nosasl"
    """How the gateway logs in; gssapi is Kerberos, with the ticket of the gateway's process."""
    user: str = "fusion"
    """User under whom statements run."""
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
    options: dict[str, str] = {}
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


class HiveSettings(_Section):
    """A dependable engine behind HiveServer2: Spark Thrift Server, Kyuubi or Hive."""

    enabled: bool = False
    """Whether statements may run on it."""
    addresses: tuple[HostPort, ...] = Field(("localhost:10000",), min_length=1)
    """host:port of each server; a statement goes to the one that answered last, or to the next that does."""
    dialect: Literal["spark", "hive"] = "spark"
    """What the servers speak: spark for Spark Thrift Server and Kyuubi, hive for Hive."""
    tables: Literal["session", "metastore"] = "session"
    """session: views of the catalog's files in each session (spark only); metastore: the servers know the tables."""
    database: str = Field("default", pattern=r"^\w+$")
    """Database in which unqualified names are looked for."""
    auth: Literal["none", "ldap", "custom", "nosasl", "kerberos"] = "none"
    """The servers' hive.server2.authentication; kerberos takes the ticket of the gateway's process."""
    user: str = "fusion"
    """User under whom statements run on HiveServer2."""
    password: SecretStr | None = None
    """Password of that user, for ldap and custom."""
    kerberos_service: str = "hive"
    """Kerberos service of the servers' principals."""
    http_path: str | None = None
    """Path of the HTTP transport, such as cliservice; without it, the binary one."""
    tls: bool = False
    """Whether connections to HiveServer2 are encrypted."""
    ca_file: Path | None = None
    """Certificates that the servers' must be signed by; without it, those that the system trusts."""
    verify: bool = True
    """Whether the servers' certificates are verified."""
    slots: int = Field(4, ge=1)
    """Statements at once, and idle sessions that are kept."""
    whole_results: bool = False
    """Spark computes a result at once and holds it in its driver, instead of piece by piece while it is read."""
    session_settings: ServerConfiguration = {}
    """Further settings of each session, by the servers' names."""
    idle_s: float = Field(300.0, gt=0.0)
    """After how long an idle session is closed."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.tables == "session" and self.dialect != "spark":
            raise ValueError("views over files are Spark's: with dialect hive set tables to metastore")
        if self.enabled and (self.auth in ("ldap", "custom")) != (self.password is not None):
            raise ValueError("a password belongs to auth ldap and custom, and they need one")
        return self


class SparkSettings(_Section):
    """The dependable engine."""

    enabled: bool = True
    """Whether statements may run on Spark."""
    remote: str | None = Field(None, pattern=r"^sc://.+")
    """Spark Connect address (sc://host:port); without it, an embedded server is started when first needed."""
    remote_token: SecretStr | None = None
    """Token that a remote server asks for; sent over TLS only, unless the server is on this machine."""
    remote_tls: bool = False
    """Whether the connection to a remote server is encrypted, also without a token."""
    master: str | None = Field(None, pattern=r"^(spark|yarn|k8s|local)")
    """Cluster for the embedded server's executors (spark://host:7077, yarn); without it, tasks run in the server."""
    driver_memory: Size = Field(ByteSize(2 << 30), ge=512 << 20)
    """Heap of the embedded server, which takes a quarter more outside of it; also of statistics jobs."""
    executor_memory: Size = Field(ByteSize(1 << 30), ge=512 << 20)
    """Heap of each executor on a cluster; without one, tasks run in the driver's."""
    hive_metastore_uri: str | None = Field(None, pattern=r"^thrift://.+")
    """Hive Metastore (thrift://host:port) whose tables the embedded server can read beside ours."""
    configuration: ServerConfiguration = {}
    """Further Spark settings of the embedded server, by Spark's names; in a file that others cannot read."""
    environment: tuple[str, ...] = ()
    """Names of the gateway's environment variables that the embedded server and statistics jobs get, too."""
    slots: int = Field(4, ge=1)
    """Statements at once."""
    warm_up: bool = True
    """Start the embedded server with the gateway instead of with the first statement."""

    @property
    def remote_address(self) -> str | None:
        """The address of a remote server with all that it asks for, as Spark Connect's clients write it. Secret."""
        if self.remote is None:
            return None
        parameters = ["use_ssl=true"] if self.remote_tls else []
        if self.remote_token is not None:
            parameters.append(f"token={quote(self.remote_token.get_secret_value(), safe='')}")
        separator = ";" if "/;" in self.remote else "/;"
        return separator.join((self.remote.rstrip("/"), ";".join(parameters))) if parameters else self.remote


class CatalogSettings(_Section):
    """What may become a table."""

    roots: tuple[Path, ...] = ()
    """Folders under which tables may be registered. With `authentication.users_file` there must be some; without both,
    a table's files must be readable by every user of the machine."""
    warehouse: Path | None = None
    """Folder of the tables that statements make; without it, `warehouse` under the home folder."""


class RoutingSettings(_Section):
    """How statements find their engine."""

    minimum_confidence: float = Field(0.3, ge=0.0, le=1.0)
    """Estimates below this confidence do not open the fast engine."""


class LimitSettings(_Section):
    """What one client may ask for."""

    statement: Size = ByteSize(1 << 20)
    """Longest statement."""
    nesting: int = Field(200, ge=1, le=500)
    """Deepest level of brackets in a statement."""
    queries: int = Field(64, ge=1)
    """Queries that run or wait at once, a user at most three times as many as are free; more are refused with 503."""
    queue_s: float = Field(60.0, ge=0.0)
    """Longest wait for a slot of an engine, and for a planner."""
    planners: int = Field(2, ge=1, le=64)
    """Statements that are planned at once, each in a process of its own; one user's take half of them at most."""
    planning_s: float = Field(10.0, gt=0.0)
    """Processor time that reading a statement may take, and that estimating it may."""
    deadline_s: float = Field(3600.0, gt=0.0)
    """Longest life of a query, and the default of timeout_s."""
    rows: int = Field(1_000, ge=0)
    """Rows in a reply where max_rows is not given; the whole result stays available."""


class ResultSettings(_Section):
    """Spooled results."""

    keep_s: float = Field(86_400.0, gt=0.0)
    """How long a result can be fetched."""
    bytes: Size = ByteSize(20 << 30)
    """Largest result of one query."""
    total: Size = ByteSize(100 << 30)
    """Bytes of all results together; the oldest go."""
    per_user: Size = ByteSize(50 << 30)
    """Bytes of one user's results together; the oldest go."""
    count: int = Field(100_000, ge=1)
    """Results that are kept; the oldest go."""
    row: Size = Field(ByteSize(16 << 20), ge=1 << 20)
    """Largest row of a result; four of that size are in memory at once, for all clients together."""
    downloads: int = Field(128, ge=2)
    """Replies with rows that are under way at once, over HTTP and Flight SQL; more are refused."""
    downloads_per_user: int = Field(32, ge=1)
    """The same of one user."""
    stall_s: float = Field(60.0, gt=0.0)
    """How long a client may read nothing of its reply before its connection is closed."""


class HistorySettings(_Section):
    """What is kept of queries that ended, with their attempts; of misestimates and statistics jobs, the age counts."""

    keep_s: float = Field(7_776_000.0, gt=0.0)
    """How long the past is kept: queries, misestimates and jobs."""
    queries: int = Field(1_000_000, ge=1)
    """Queries that are kept; the oldest go."""
    bytes: Size = ByteSize(10 << 30)
    """Bytes of their statements and decisions, about; the oldest go."""


class ScheduleSettings(_Section):
    """When statistics are computed without anybody asking."""

    enabled: bool = True
    """Whether this gateway runs schedules; of several over one metastore, each run is one's."""
    jobs: int = Field(2, ge=1, le=64)
    """Jobs of schedules at once; what is due beyond that waits for its turn."""
    check_s: float = Field(900.0, ge=1.0)
    """How often schedules on staleness look at their tables' files."""
    misestimate_wait_s: float = Field(60.0, ge=0.0)
    """How long a misestimate waits for others before the statistics of all their tables are computed."""
    retries: int = Field(5, ge=0, le=100)
    """How often a run that failed is repeated before it waits for its next time."""
    retry_first_s: float = Field(60.0, gt=0.0)
    """Wait before the first repetition; each further one is twice as long."""
    retry_longest_s: float = Field(3600.0, gt=0.0)
    """Longest wait before a repetition."""


class Settings(BaseSettings):
    """All settings of a gateway."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="FUSION_",
        env_nested_delimiter="__",
        use_attribute_docstrings=True,
        nested_model_default_partial_update=True,
    )

    home: Path = Path(DEFAULT_HOME)
    """Folder under which everything lies that this gateway keeps."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Detail of the log on standard error."""
    server: ServerSettings = ServerSettings()
    tls: TlsSettings = TlsSettings()
    authentication: AuthenticationSettings = AuthenticationSettings()
    hs2: Hs2Settings = Hs2Settings()
    flight: FlightSettings = FlightSettings()
    metastore: MetastoreSettings = MetastoreSettings()
    duckdb: DuckDBSettings = DuckDBSettings()
    impala: ImpalaSettings = ImpalaSettings()
    spark: SparkSettings = SparkSettings()
    hive: HiveSettings = HiveSettings()
    catalog: CatalogSettings = CatalogSettings()
    routing: RoutingSettings = RoutingSettings()
    limits: LimitSettings = LimitSettings()
    results: ResultSettings = ResultSettings()
    history: HistorySettings = HistorySettings()
    schedules: ScheduleSettings = ScheduleSettings()

    @model_validator(mode="after")
    def _one_fast_engine(self) -> Self:
        if self.duckdb.enabled and self.impala.enabled:
            raise ValueError("a gateway has one fast engine: with impala.enabled set duckdb.enabled to false")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order: arguments, environment, file."""
        home = _home(init_settings.init_kwargs) if hasattr(init_settings, "init_kwargs") else _home({})
        file = TomlConfigSettingsSource(settings_cls, toml_file=home / FILE_NAME)
        return init_settings, env_settings, file

    @property
    def warehouse(self) -> Path:
        """Folder of the tables that statements make, absolute."""
        return (self.catalog.warehouse or self.home / "warehouse").absolute()

    @property
    def metastore_url(self) -> str:
        """The metastore's SQLAlchemy URL."""
        if self.metastore.url is not None:
            return self.metastore.url.get_secret_value()
        return f"sqlite:///{self.home / 'metastore.db'}"


def load(home: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings of a home folder, made absolute. Raises pydantic's ValidationError."""
    folder = home or _home({})
    return Settings(home=folder.expanduser().absolute(), **overrides)


def _home(arguments: dict[str, Any]) -> Path:
    return Path(arguments.get("home") or os.environ.get("FUSION_HOME") or DEFAULT_HOME)
