"""Azure: Blob Storage and Data Lake Storage Gen2, which are two doors to the same containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from metastore.objects.kinds.kind import (
    InvalidLocation,
    ObjectStore,
    delta_limits,
    filled,
    joined,
    scheme_and_host,
)

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_CONTAINER = re.compile(r"[a-z0-9](-?[a-z0-9]){2,62}")
_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net")
_SAS = "adls.sas-token"
"""pyiceberg's property with a token; catalogs put the account or its host behind it."""


@dataclass(frozen=True, slots=True)
class AzureStore(ObjectStore):
    """A prefix such as ``abfss://container@account.dfs.core.windows.net/folder``, which names the account."""

    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)

    SCHEMES: ClassVar = ("abfss", "abfs", "wasbs", "wasb", "az", "azure")
    EXAMPLE: ClassVar = "abfss://container@account.dfs.core.windows.net/folder"
    CREDENTIALS: ClassVar = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    PROPERTIES: ClassVar = {
        "adls.account-key": "account_key",
        _SAS: "sas_token",
        "adls.tenant-id": "tenant_id",
        "adls.client-id": "client_id",
        "adls.client-secret": "client_secret",
    }
    DENIED: ClassVar = ("AuthenticationFailed", "AuthorizationFailure", "AuthorizationPermissionMismatch")
    GONE: ClassVar = ("ContainerNotFound",)

    @staticmethod
    def canonical(scheme: str, rest: str) -> str:
        """Return a location as ``abfss://container@account.dfs.core.windows.net/a/b``. Raises InvalidLocation.

        Others also write ``wasbs://container@account.blob...`` and ``az://account.blob.core.windows.net/container``.
        """
        first, _, path = rest.partition("/")
        container, _, host = first.rpartition("@")
        if not container and _HOST.fullmatch(host):
            container, _, path = path.partition("/")
        account = _HOST.fullmatch(host)
        if account is None or _CONTAINER.fullmatch(container) is None:
            raise InvalidLocation(f"{first!r:.80} does not name a container and an account: give {AzureStore.EXAMPLE}")
        return joined(f"abfss://{container}@{account[1]}.dfs.core.windows.net", path)

    @staticmethod
    def key(location: str) -> str:
        """Return a canonical location as a path of the store's file system: ``container/a/b``."""
        first, slash, path = location.partition("://")[2].partition("/")
        return f"{first.partition('@')[0]}{slash}{path}"

    @property
    def account(self) -> str:
        """Name of the storage account."""
        return self.prefix.partition("@")[2].partition(".")[0]

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The store as a file system; its paths begin with the container."""
        return _filesystem(self)

    def delta_options(self) -> dict[str, str]:
        """Return the options by which delta-rs reaches the store."""
        return filled(
            {
                **delta_limits(self.endpoint),
                "azure_storage_account_name": self.account,
                "azure_storage_endpoint": f"{self.endpoint.rstrip('/')}/{self.account}" if self.endpoint else "",
                "azure_storage_account_key": self.account_key,
                "azure_storage_sas_token": self.sas_token,
                "azure_storage_tenant_id": self.tenant_id,
                "azure_storage_client_id": self.client_id,
                "azure_storage_client_secret": self.client_secret,
            }
        )

    def iceberg_properties(self) -> dict[str, str]:
        """Return the properties by which pyiceberg reaches the store."""
        scheme, host = scheme_and_host(self.endpoint)
        properties = super(AzureStore, self).iceberg_properties()
        return filled({**properties, "adls.blob-storage-authority": host, "adls.blob-storage-scheme": scheme})

    @classmethod
    def of_properties(cls, location: str, properties: Mapping[str, str]) -> dict[str, str]:
        """Return the fields that pyiceberg's properties give for a location; a token may be one account's."""
        fields = super(AzureStore, cls).of_properties(location, properties)
        host = location.partition("@")[2].partition("/")[0]
        for name in (host, host.replace(".dfs.", ".blob."), host.partition(".")[0]):
            if token := properties.get(f"{_SAS}.{name}"):
                fields["sas_token"] = token
        authority = properties.get("adls.blob-storage-authority")
        if authority:
            fields["endpoint"] = f"{properties.get('adls.blob-storage-scheme', 'https')}://{authority}"
        return fields


@lru_cache(64)
def _filesystem(store: AzureStore) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # it takes a tenth of a second, and most processes open no store

    scheme, host = scheme_and_host(store.endpoint)
    options = {
        "account_key": store.account_key,
        "sas_token": store.sas_token,
        "tenant_id": store.tenant_id,
        "client_id": store.client_id,
        "client_secret": store.client_secret,
        "blob_storage_authority": host,
        "blob_storage_scheme": scheme,
        "dfs_storage_authority": host,
        "dfs_storage_scheme": scheme,
    }
    return pafs.AzureFileSystem(store.account, **filled(options))
