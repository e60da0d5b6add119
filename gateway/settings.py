"""Typed settings: ``HOME/fusion.toml``, overridden by FUSION_* variables (FUSION_DUCKDB__WORKERS=4).

Read once, at the edge; everything below gets values. It is long because each section of the file has a class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from engines.adapter import Adapter, EngineSettings, Section, Size, adapters
from gateway.security.access.settings import AccessSettings
from gateway.security.authentication import Anonymous
from gateway.security.identity.settings import KerberosSettings, LdapSettings, OidcSettings
from gateway.security.principals import Role
from metastore.objects.access import CatalogAccess, ObjectAccess
from metastore.objects.credentials import of_glue, with_credentials
from metastore.objects.kinds.kind import ObjectStore
from metastore.objects.store import is_remote, kind_of, location_of
from selector.decision import RoutingPolicy, Rule
from sql.bounds import LONGEST_STATEMENT
from sql.dialects.names import dialect_named

CATALOG_NAME = r"^[a-z][a-z0-9_]{0,62}$"
CatalogName = Annotated[str, Field(pattern=CATALOG_NAME)]
DialectName = Annotated[str, AfterValidator(dialect_named)]


def _of_this_machine(path: object) -> object:
    """Return a path. Raises ValueError for a location in an object store, which would become a folder ``s3:``."""
    if "://" in str(path):
        raise ValueError("this is a path on the gateway's machine; places in object stores are prefixes of stores.NAME")
    return path


LocalPath = Annotated[Path, BeforeValidator(_of_this_machine)]
EngineSection = TypeVar("EngineSection", bound=EngineSettings)

DEFAULT_HOME = ".fusion"
FILE_NAME = "fusion.toml"
RULES_NAME = "rules.toml"


class LoggingSettings(Section):
    """The log on standard error, and the audit file."""

    format: Literal["text", "json"] = "text"
    """Whether a line is a text or a JSON object; with `json`, so are ends of queries and events of security."""
    audit: bool = False
    """Whether logins, refusals, changes over HTTP and the ends of statements, with their texts, go to `audit.log` under
    the home folder as well, as JSON objects; only the gateway's own user may read it."""
    audit_bytes: Size = Field(ByteSize(64 << 20), ge=1 << 16)
    """Size at which that file is set aside for a new one."""
    audit_files: int = Field(10, ge=1, le=1000)
    """Files that are kept beside it; the oldest go."""


class ServerSettings(Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback shows the endpoint to the network."""
    port: int = Field(8650, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    hosts: tuple[str, ...] = ()
    """Names of the HTTP server beside addresses, `localhost` and this machine's own; `*` for any."""
    origins: tuple[str, ...] = ()
    """Origins of pages elsewhere that may change something here, such as `https://notebook.example`."""
    public_url: str | None = None
    """Address at which browsers reach the gateway, such as `https://sql.example.com`; without it, that of each request.
    Logins of browsers come back to it, and its host counts as one of `server.hosts`."""
    processes: int = Field(1, ge=1, le=64)
    """Gateways that serve this home side by side, on the same ports, with one budget; more use more processors."""
    sql_page: bool = True
    """Whether the dashboard has a page to write statements on."""
    cancel_wait_s: float = Field(10.0, ge=0.0)
    """How long a DELETE waits for the query's end."""
    drain_s: float = Field(0.0, ge=0.0, le=300.0)
    """Time after SIGTERM in which `/readyz` is 503 and requests are taken, so that a load balancer goes elsewhere."""

    @field_validator("public_url")
    @classmethod
    def _plain_address(cls, public_url: str | None) -> str | None:
        if public_url is None:
            return None
        parsed = urlsplit(public_url)
        if parsed.scheme not in ("http", "https") or not parsed.hostname or parsed.query or parsed.fragment:
            raise ValueError(f"{public_url} is not an address such as https://sql.example.com")
        return public_url.rstrip("/")

    @property
    def own_hosts(self) -> frozenset[str]:
        """Names under which settings say that the server is reached."""
        public = urlsplit(self.public_url or "").hostname
        return frozenset({self.host, *self.hosts, *([public] if public else [])})


class MembersSettings(Section):
    """The port on which gateways of the same PostgreSQL pass requests on to each other."""

    host: str | None = None
    """Address to listen on; without it, that of the HTTP server."""
    port: int = Field(0, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    address: str | None = None
    """Host at which the other gateways reach this one; without it, `members.host`, or this machine's name for all."""


class TlsSettings(Section):
    """Encryption of every port."""

    certificate: Path | None = None
    """Certificate with its chain, PEM; with one, HTTP becomes HTTPS and drivers must speak TLS."""
    key: Path | None = None
    """Private key of the certificate, PEM without a password; without it, the certificate's file holds it."""


class AuthenticationSettings(Section):
    """Authentication, over HTTP and with drivers alike."""

    users_file: Path | None = None
    """File of users, a line per user as `fusion password NAME` prints it; without it, nobody has a password."""
    anonymous: Anonymous = Anonymous.LOOPBACK
    """Who may come without a login: `never` anybody, `loopback` clients on this machine, `everywhere` all."""
    operators: tuple[str, ...] = ()
    """Users with the role `operator`; the same as naming them in `roles`."""
    roles: dict[str, Role] = Field(default_factory=dict)
    """Roles of users: `reader`, `writer`, `operator` or `admin`; a role in the users file comes first."""
    group_roles: dict[str, Role] = Field(default_factory=dict)
    """Roles of groups of an identity provider or directory, for users not named in `roles`; the highest counts."""
    default_role: Role = Role.WRITER
    """Role of users who log in and have no other."""
    required_groups: tuple[str, ...] = ()
    """Groups of which a user of an identity provider or directory must have one to come in; empty: every user may."""
    anonymous_role: Role | None = None
    """Role of clients without a login; by itself `reader` where users log in, else `admin` here, `writer` afar."""
    oidc: OidcSettings = OidcSettings()
    ldap: LdapSettings = LdapSettings()
    kerberos: KerberosSettings = KerberosSettings()

    @property
    def has_users(self) -> bool:
        """Tell whether users can log in."""
        has_source = self.oidc.issuer is not None or bool(self.ldap.servers) or self.kerberos.keytab is not None
        return self.users_file is not None or has_source

    @model_validator(mode="after")
    def _groups_of_tickets(self) -> Self:
        if self.kerberos.keytab is not None and self.ldap.group_base and not self.ldap.bind_dn:
            raise ValueError("ldap.bind_dn is missing: who has a ticket sends no password, so nobody could read groups")
        return self


class Hs2Settings(Section):
    """HiveServer2: the port of Hive's, Spark's and Impala's drivers, on the address of the HTTP server."""

    enabled: bool = True
    """Whether there is a port for drivers; over HTTP, `/cliservice` is always there."""
    port: int = Field(10_000, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    dialect: DialectName | None = None
    """Dialect of drivers that set none, here and over `/cliservice`; without it, what they send tells it."""
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


class FlightSettings(Section):
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


class MetastoreSettings(Section):
    """Database of the catalog, the statistics and the query log."""

    url: SecretStr | None = None
    """SQLAlchemy URL; without it, an SQLite file under the home folder."""


class CatalogSettings(Section):
    """Limits on what may be registered as a table."""

    roots: tuple[LocalPath, ...] = ()
    """Folders under which tables may be registered. Where users log in there must be some; where nobody does and there
    are none, a table's files must be readable by every user of the machine."""
    warehouse: LocalPath | None = None
    """Folder of the tables that statements make; without it, `warehouse` under the home folder."""
    delta_warehouse: str = ""
    """Location in an object store of the Delta tables that statements make without `LOCATION`, such as
    `s3://lake/tables`; without it, they lie in `warehouse`."""
    iceberg_uris: tuple[str, ...] = ()
    """Addresses at and under which operators may add Iceberg catalogs by command, such as `https://catalog.example/`."""
    iceberg_secrets: Path | None = None
    """Folder of files with the secrets of catalogs that commands add; without it, variables FUSION_CATALOGS_X alone."""

    @field_validator("delta_warehouse")
    @classmethod
    def _canonical(cls, location: str) -> str:
        return location and location_of(location)


class StoreSettings(Section):
    """An object store, or a part of one, in which tables may lie."""

    prefix: str
    """Location under which tables may be registered, such as `s3://lake/sales`,
    `abfss://lake@account.dfs.core.windows.net/sales` or `gs://lake/sales`."""
    endpoint: str = ""
    """Address of a store that is not its provider's own, such as `https://minio.example:9000`."""
    region: str = "us-east-1"
    """Region of the bucket, in S3."""
    access_key: SecretStr | None = None
    """S3's access key; without it, those of the environment (`AWS_ACCESS_KEY_ID`, ...), of the AWS profile
    (`AWS_SHARED_CREDENTIALS_FILE`, `AWS_PROFILE`) or of the machine's role."""
    secret_key: SecretStr | None = None
    """Secret key of the access key."""
    session_token: SecretStr | None = None
    """Session token of short-lived keys."""
    account_key: SecretStr | None = None
    """Key of the Azure account; without any of Azure's credentials, those of the environment (`AZURE_STORAGE_KEY`,
    `AZURE_STORAGE_SAS_TOKEN`; `AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_CLIENT_SECRET`) or of the machine's
    role."""
    sas_token: SecretStr | None = None
    """Shared access signature of the Azure account or container, in the place of its key."""
    tenant_id: str = ""
    """Tenant of the service principal by which Azure is reached."""
    client_id: str = ""
    """Id of the service principal."""
    client_secret: SecretStr | None = None
    """Secret of the service principal."""
    credentials_file: Path | None = None
    """JSON file with Google's credentials, such as a service account's key; without it, that of the environment
    (`GOOGLE_APPLICATION_CREDENTIALS`) or the machine's role."""

    @field_validator("prefix")
    @classmethod
    def _canonical(cls, prefix: str) -> str:
        return location_of(prefix)

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        kind = kind_of(self.prefix)
        foreign = sorted(self.model_fields_set - {field.name for field in fields(kind)})
        if foreign:
            raise ValueError(f"{foreign[0]} is not of a store such as {kind.EXAMPLE}")
        return self

    @property
    def store(self) -> ObjectStore:
        """The store with its credentials."""
        kind = kind_of(self.prefix)
        values = {field.name: getattr(self, field.name, None) for field in fields(kind)}
        texts = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in values.items()
            if value is not None
        }
        return with_credentials(kind(**texts))


class ObjectSettings(Section):
    """Copies of objects on this machine: what statements read of files in object stores stays for the next one."""

    folder: LocalPath | None = None
    """Folder of the copies; without it, `objects` under the home folder. Gateways of one machine may share one."""
    bytes: Size = Field(ByteSize(20 << 30), ge=64 << 20)
    """Bytes of all copies; what is used least goes. One statement's columns must fit."""


class LakeCatalogSettings(Section):
    """An Iceberg catalog; its tables are `NAME.namespace.table`."""

    type: Literal["rest", "sql", "glue", "hive"] = "rest"
    """Kind of the catalog; `sql` is pyiceberg's own, over a database."""
    uri: SecretStr = SecretStr("")
    """Its address: of a REST catalog, of a database (SQLAlchemy's URL, which may have a password), or of a Hive
    Metastore (`thrift://...`)."""
    warehouse: str = ""
    """Name or location of its warehouse."""
    credential: SecretStr | None = None
    """Client id and secret for OAuth2, `id:secret`."""
    token: SecretStr | None = None
    """Bearer token, in the place of a credential."""
    properties: dict[str, str] = Field(default_factory=dict)
    """Further properties of pyiceberg, such as `scope` or `oauth2-server-uri`."""
    max_age_s: float = Field(60.0, gt=0.0)
    """How old the list of its tables may be. A statement that names a table which is not on it looks at once, and the
    snapshot of a table is always the newest."""


class RoutingSettings(Section):
    """Routing of statements to engines."""

    policy: Rule = Rule.EXPECTED
    """What decides: `expected`, the least expected seconds; `safe`, a bound on running out of memory; `paper`."""
    rules: Path | None = None
    """File of routing rules, TOML; without it, `rules.toml` under the home folder, where there is one."""
    safe_miss: float = Field(0.05, ge=0.0, lt=1.0)
    """Largest probability of running out of memory, by the policy `safe`."""
    miss_price_s: float = Field(0.0, ge=0.0)
    """Seconds that running out of memory costs beside its own: where it hurts others, too."""
    explore: bool = True
    """Whether a template that always went elsewhere is tried on the fast engine once caution has cost as much."""
    seed: int = 0
    """Of the thresholds of such tries, which are spread over the templates."""
    lease_by_estimate: bool = True
    """Whether a statement is leased the memory that it is likely to need, instead of its engine's whole limit."""

    @property
    def routing_policy(self) -> RoutingPolicy:
        """The same as the selector takes it."""
        return RoutingPolicy(
            self.policy, self.safe_miss, self.miss_price_s, self.explore, self.seed, self.lease_by_estimate
        )


class PoolSettings(Section):
    """One pool: limits of its statements, over all engines together, and its share beside other pools.

    Statements that name no pool, or none that is configured, are in the pool `default`.
    """

    memory: Size | None = Field(None, ge=16 << 20)
    """Memory of all its statements on engines that do not spill; one of them has no more. Without it, no limit."""
    slots: int | None = Field(None, ge=1)
    """Its statements at once."""
    queue: int | None = Field(None, ge=0)
    """Its statements that may wait at once."""
    queue_s: float | None = Field(None, ge=0.0)
    """Longest wait of its statements; without it, `limits.queue_s`."""
    when_full: Literal["next", "refuse"] = "next"
    """When its queue is full or the wait over: take the `next` engine, or `refuse` with 503 and the code POOL_FULL."""
    weight: float = Field(1.0, ge=0.001, le=1000.0)
    """Its share of an engine beside other pools that wait for it."""
    policy: Rule | None = None
    """What decides for its statements; without it, `routing.policy`."""
    threads: int | None = Field(None, ge=1)
    """Threads of each of its statements, where an engine lets that be chosen; without it, the engine's own setting."""
    cache: bool | None = None
    """Whether its queries may be answered from the cache; without it, `cache.enabled`."""
    parity: float | None = Field(None, ge=0.0, le=1.0)
    """Share of its queries whose answers are compared; without it, `parity.share`."""


class CacheSettings(Section):
    """Results that answer repeated queries while nothing that they read has changed."""

    enabled: bool = False
    """Whether that is so for statements whose session and pool say nothing: `SET fusion.cache`, `pools.NAME.cache`."""
    bytes: Size = Field(ByteSize(256 << 20), ge=0)
    """Bytes of all cached results; what was not asked for longest goes. One may take a sixteenth. 0: there is no
    cache, whatever sessions set."""
    keep_s: float = Field(3_600.0, gt=0.0)
    """How long a result answers others at most; at midnight, UTC, all go."""


class ParitySettings(Section):
    """Answers of fast engines that are compared with the dependable engine's, in the background.

    Where they differ, the template goes to the dependable engine until `fusion parity release`.
    """

    share: float = Field(0.001, ge=0.0, le=1.0)
    """Share of the queries that fast engines answered; 0: none."""
    seconds_a_day: float = Field(1800.0, ge=0.0)
    """Seconds of the dependable engine for that, a day in UTC."""


class LimitSettings(Section):
    """Limits on one client's requests."""

    statement: Size = Field(ByteSize(1 << 20), le=LONGEST_STATEMENT)
    """Longest statement."""
    bodies: Size = ByteSize(128 << 20)
    """Bytes of the bodies of all HTTP requests in memory at once, one user's half of them at most; more are refused
    with 503. There is always room for two of the longest."""
    requests: int = Field(16, ge=2, le=64)
    """HTTP requests beside statements that are worked on at once, each in a thread of its own; one user has half of
    them at most, and eight times as many may wait."""
    request_s: float = Field(600.0, gt=0.0)
    """Longest life of an HTTP request that is no statement, such as a registration, an explanation or a replay."""
    nesting: int = Field(200, ge=1, le=500)
    """Deepest level of brackets in a statement."""
    queries: int = Field(64, ge=1)
    """Queries that run or wait at once, a user at most three times as many as are free; more are refused with 503."""
    queue_s: float = Field(60.0, ge=0.0)
    """Longest wait for a slot of an engine, and for a planner."""
    planners: int = Field(2, ge=1, le=64)
    """Statements that are planned at once, each in a process of its own; one user's take half of them at most. There
    are two at least, also in each of several gateways, so that no user has all."""
    planning_s: float = Field(10.0, gt=0.0)
    """Processor time that reading a statement may take, and that estimating it may."""
    deadline_s: float = Field(3600.0, gt=0.0)
    """Longest life of a query, and the default of timeout_s."""
    rows: int = Field(1_000, ge=0)
    """Rows in a reply where max_rows is not given; the whole result stays available."""


class ResultSettings(Section):
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
    early: bool = True
    """Whether rows can be read while their query runs, where no other engine's rows can take their place any more, for
    sessions that say nothing: `SET fusion.early_rows`."""
    stall_s: float = Field(60.0, gt=0.0)
    """How long a client may read nothing of its reply before its connection is closed."""


class HistorySettings(Section):
    """Retention of queries that ended, with their attempts; of misestimates and statistics jobs, the age counts."""

    keep_s: float = Field(7_776_000.0, gt=0.0)
    """How long the past is kept: queries, misestimates and jobs."""
    queries: int = Field(1_000_000, ge=1)
    """Queries that are kept; the oldest go."""
    bytes: Size = ByteSize(10 << 30)
    """Bytes of their statements and decisions, about; the oldest go."""


class _Pricing(Section):
    """Prices of engines, in any one currency: with all of them, the savings ledger is in money, too."""

    @property
    def per_hour(self) -> dict[str, float]:
        """Prices by engine."""
        prices = {adapter.section: getattr(self, f"{adapter.section}_per_hour") for adapter in adapters()}
        return {engine: price for engine, price in prices.items() if price is not None}


if TYPE_CHECKING:
    PricingSettings = _Pricing
else:
    PricingSettings = create_model(
        "PricingSettings",
        __base__=_Pricing,
        __doc__=_Pricing.__doc__,
        **{
            f"{adapter.section}_per_hour": (
                float | None,
                Field(None, ge=0.0, description=f"Price of an hour in which {adapter.product} works for a statement."),
            )
            for adapter in adapters()
        },
    )


class ScheduleSettings(Section):
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


class CoreSettings(BaseSettings):
    """All settings of a gateway but its engines', of which each has a section of its own."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="FUSION_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    home: Path = Path(DEFAULT_HOME)
    """Folder under which everything lies that this gateway keeps."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Detail of the log on standard error."""
    logging: LoggingSettings = LoggingSettings()
    server: ServerSettings = ServerSettings()
    members: MembersSettings = MembersSettings()
    tls: TlsSettings = TlsSettings()
    authentication: AuthenticationSettings = AuthenticationSettings()
    access: AccessSettings = AccessSettings()
    hs2: Hs2Settings = Hs2Settings()
    flight: FlightSettings = FlightSettings()
    metastore: MetastoreSettings = MetastoreSettings()
    catalog: CatalogSettings = CatalogSettings()
    stores: dict[str, StoreSettings] = Field(default_factory=dict)
    """Object stores by name, each with the settings below; a name is for people only."""
    objects: ObjectSettings = ObjectSettings()
    catalogs: dict[CatalogName, LakeCatalogSettings] = Field(default_factory=dict)
    """Iceberg catalogs by name, each with the settings below."""
    routing: RoutingSettings = RoutingSettings()
    pools: dict[str, PoolSettings] = Field(default_factory=dict)
    """Pools by name, each with the settings below; `SET fusion.pool` or Impala's `request_pool` names a session's."""
    cache: CacheSettings = CacheSettings()
    parity: ParitySettings = ParitySettings()
    limits: LimitSettings = LimitSettings()
    results: ResultSettings = ResultSettings()
    history: HistorySettings = HistorySettings()
    pricing: PricingSettings = PricingSettings()
    schedules: ScheduleSettings = ScheduleSettings()

    @model_validator(mode="after")
    def _warehouse_in_a_store(self) -> Self:
        warehouse = self.catalog.delta_warehouse
        if warehouse and not any(store.store.holds(warehouse) for store in self.stores.values()):
            raise ValueError(f"catalog.delta_warehouse {warehouse} lies under no stores.NAME.prefix")
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
        home = home_folder(getattr(init_settings, "init_kwargs", {}).get("home"))
        file = TomlConfigSettingsSource(settings_cls, toml_file=home / FILE_NAME)
        return init_settings, env_settings, file

    def section(self, model: type[EngineSection]) -> EngineSection:
        """Return an engine's section. Raises LookupError where its package is not installed."""
        for adapter in adapters():
            settings = getattr(self, adapter.section)
            if isinstance(settings, model):
                return settings
        raise LookupError(f"no installed engine has settings {model.__name__}")

    def engines(self) -> Iterator[tuple[Adapter[Any], EngineSettings]]:
        """Yield the engines that are enabled, each with its section, in the order in which they are tried."""
        for adapter in adapters():
            section: EngineSettings = getattr(self, adapter.section)
            if section.enabled:
                yield adapter, section

    @property
    def warehouse(self) -> Path:
        """Folder of the tables that statements make, absolute."""
        return (self.catalog.warehouse or self.home / "warehouse").absolute()

    @property
    def object_access(self) -> ObjectAccess:
        """The object stores, with their credentials, and where copies lie."""
        folder = (self.objects.folder or self.home / "objects").absolute()
        stores = tuple(section.store for section in self.stores.values())
        catalogs = tuple(access_to_catalog(name, section, stores) for name, section in self.catalogs.items())
        return ObjectAccess(stores, catalogs, folder, int(self.objects.bytes))

    @property
    def rules_file(self) -> Path:
        """The file of routing rules, which has to be there only where it is named."""
        return (self.routing.rules or self.home / RULES_NAME).absolute()

    @property
    def metastore_url(self) -> str:
        """The metastore's SQLAlchemy URL."""
        if self.metastore.url is not None:
            return self.metastore.url.get_secret_value()
        return f"sqlite:///{self.home / 'metastore.db'}"

    @property
    def has_own_metastore(self) -> bool:
        """Tell whether the metastore is a file of this home folder, which no other gateway uses."""
        return self.metastore.url is None


if TYPE_CHECKING:
    Settings = CoreSettings
else:
    Settings = create_model(
        "Settings",
        __base__=CoreSettings,
        __doc__="All settings of a gateway.",
        **{adapter.section: (adapter.settings, adapter.settings()) for adapter in adapters()},
    )


def access_to_catalog(name: str, section: LakeCatalogSettings, stores: Sequence[ObjectStore]) -> CatalogAccess:
    """Return how a catalog is reached; the store of its warehouse gives what reads its metadata."""
    warehouse = section.warehouse
    holding = (store for store in stores if is_remote(warehouse) and store.holds(location_of(warehouse)))
    store = max(holding, key=lambda one: len(one.prefix), default=None)
    uri = section.uri.get_secret_value()
    tokens = f"{uri.rstrip('/')}/v1/oauth/tokens" if section.type == "rest" and section.credential else ""
    properties = {
        **(store.iceberg_properties() if store is not None else {}),
        **(of_glue(store) if section.type == "glue" else {}),
        "uri": uri,
        "oauth2-server-uri": tokens,
        "warehouse": warehouse,
        "credential": section.credential.get_secret_value() if section.credential is not None else "",
        "token": section.token.get_secret_value() if section.token is not None else "",
        **section.properties,
    }
    return CatalogAccess(name, section.type, tuple((key, value) for key, value in properties.items() if value))


def load(home: Path | None = None, **overrides: Any) -> Settings:
    """Read the settings of a home folder, made absolute. Raises pydantic's ValidationError."""
    return Settings(home=home_folder(home).expanduser().absolute(), **overrides)


def home_folder(named: Path | None = None) -> Path:
    """Return the home folder that is meant: the one that is named, or FUSION_HOME, or the usual one."""
    return Path(named or os.environ.get("FUSION_HOME") or DEFAULT_HOME)
