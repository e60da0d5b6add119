"""Typed settings: ``HOME/fusion.toml``, overridden by FUSION_* variables (FUSION_DUCKDB__WORKERS=4).

Read once, at the edge; everything below gets values.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

DEFAULT_HOME = ".fusion"
FILE_NAME = "fusion.toml"


def _plain_size(value: Any) -> Any:
    """Read ``384 MiB`` and ``1_000`` alike."""
    return value.replace(" ", "").replace("_", "") if isinstance(value, str) else value


Size = Annotated[ByteSize, BeforeValidator(_plain_size)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServerSettings(_Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback shows the endpoint to the network."""
    port: int = Field(8650, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    cancel_wait_s: float = Field(10.0, ge=0.0)
    """How long a DELETE waits for the query's end."""


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


class SparkSettings(_Section):
    """The dependable engine."""

    enabled: bool = True
    """Whether statements may run on Spark."""
    remote: str | None = Field(None, pattern=r"^sc://.+")
    """Spark Connect address (sc://host:port); without it, an embedded server is started when first needed."""
    driver_memory: Size = Field(ByteSize(2 << 30), ge=512 << 20)
    """Heap of the embedded server, and of statistics jobs."""
    slots: int = Field(4, ge=1)
    """Statements at once."""
    warm_up: bool = True
    """Start the embedded server with the gateway instead of with the first statement."""


class CatalogSettings(_Section):
    """What may become a table."""

    roots: tuple[Path, ...] = ()
    """Folders under which tables may be registered over HTTP; without any, wherever the gateway can read."""


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
    """Queries that run or wait at once; more are refused with 503."""
    queue_s: float = Field(60.0, ge=0.0)
    """Longest wait for a slot of an engine."""
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
    metastore: MetastoreSettings = MetastoreSettings()
    duckdb: DuckDBSettings = DuckDBSettings()
    spark: SparkSettings = SparkSettings()
    catalog: CatalogSettings = CatalogSettings()
    routing: RoutingSettings = RoutingSettings()
    limits: LimitSettings = LimitSettings()
    results: ResultSettings = ResultSettings()
    schedules: ScheduleSettings = ScheduleSettings()

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
