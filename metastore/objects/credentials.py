"""Credentials of object stores: of the settings, a catalog, the environment, or AWS's files. No other place looks.

Where none of them has any, the libraries ask the machine's role: pyarrow and delta-rs by the provider's usual ways.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from metastore.objects.kinds.azure import AzureStore
from metastore.objects.kinds.gcs import GcsStore
from metastore.objects.kinds.kind import ObjectStore, filled
from metastore.objects.kinds.s3 import S3Store
from metastore.objects.store import kind_of, location_of

Fields = dict[str, str]
"""Values by the names of a store's fields; "" where there is none."""

_AWS = {"access_key": "aws_access_key_id", "secret_key": "aws_secret_access_key", "session_token": "aws_session_token"}
"""Names of credentials in AWS's files, and in capitals in the environment."""


def with_credentials(store: ObjectStore, environment: Mapping[str, str] = os.environ) -> ObjectStore:
    """Return a store with its own credentials, or those of the environment or of its provider's files."""
    return store if store.is_authorized else replace(store, **_LOOKUPS[type(store)](store, environment))


def with_given(store: ObjectStore | None, location: str, properties: Mapping[str, str]) -> ObjectStore | None:
    """Return how a location is reached by the properties that a catalog gives with a table, for this table alone.

    store: of the settings that holds the location; it stands where the catalog gives no credentials. None: none does.
    """
    kind = kind_of(location)
    fields = kind.of_properties(location, properties)
    if not any(name in fields for name in kind.CREDENTIALS):
        return store
    others = dict.fromkeys(kind.CREDENTIALS, "")
    return replace(store or kind(location), **{**others, **fields, "prefix": location})


def of_glue(store: ObjectStore | None) -> dict[str, str]:
    """Return pyiceberg's properties by which Glue is reached. store: of the warehouse; None: of no settings."""
    keys = with_credentials(store if isinstance(store, S3Store) else S3Store("s3://"))
    assert isinstance(keys, S3Store)
    return filled(
        {
            "client.access-key-id": keys.access_key,
            "client.secret-access-key": keys.secret_key,
            "client.session-token": keys.session_token,
        }
    )


def of_properties(location: str, properties: Mapping[str, str]) -> ObjectStore:
    """Return how a location is reached by pyiceberg's properties alone, or by the machine's role."""
    kind = kind_of(location)
    root = "/".join(location_of(location).split("/")[:3])
    return kind(root, **kind.of_properties(location_of(location), properties))


def _of_aws(_: ObjectStore, environment: Mapping[str, str]) -> Fields:
    keys = {name: environment.get(key.upper(), "") for name, key in _AWS.items()}
    return keys if keys["access_key"] else _of_aws_profile(environment)


def _of_aws_profile(environment: Mapping[str, str]) -> Fields:
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")
    profiles = configparser.ConfigParser(interpolation=None)
    try:
        profiles.read(path.expanduser(), encoding="utf-8")
        profile = profiles[environment.get("AWS_PROFILE", "default")]
    except (KeyError, RuntimeError, configparser.Error):
        return {}
    return {name: profile.get(key, "") for name, key in _AWS.items()}


def _of_azure(store: ObjectStore, environment: Mapping[str, str]) -> Fields:
    """Return the key or the token of the account that the environment names, or else a service principal."""
    assert isinstance(store, AzureStore)
    if environment.get("AZURE_STORAGE_ACCOUNT", store.account) == store.account:
        for field, variable in (("account_key", "AZURE_STORAGE_KEY"), ("sas_token", "AZURE_STORAGE_SAS_TOKEN")):
            if environment.get(variable):
                return {field: environment[variable]}
    names = ("tenant_id", "client_id", "client_secret")
    principal = {name: environment.get(f"AZURE_{name.upper()}", "") for name in names}
    return principal if all(principal.values()) else {}


def _of_google(_: ObjectStore, environment: Mapping[str, str]) -> Fields:
    return {"credentials_file": environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")}


_LOOKUPS: Mapping[type[ObjectStore], Callable[[ObjectStore, Mapping[str, str]], Fields]] = {
    S3Store: _of_aws,
    AzureStore: _of_azure,
    GcsStore: _of_google,
}
