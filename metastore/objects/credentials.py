"""Credentials of object stores: from the settings, the environment, or the AWS files. No other place looks for any."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from metastore.objects.store import ObjectStore

_KEYS = {"access_key": "aws_access_key_id", "secret_key": "aws_secret_access_key", "session_token": "aws_session_token"}
"""Names of credentials in AWS's files, and in capitals in the environment."""


def with_credentials(store: ObjectStore, environment: Mapping[str, str] = os.environ) -> ObjectStore:
    """Return a store with its own credentials, or those of the environment, or those of the AWS profile.

    Where none of them has any, the libraries ask the machine's role.
    """
    if store.access_key:
        return store
    found = {name: environment.get(key.upper(), "") for name, key in _KEYS.items()}
    if not found["access_key"]:
        found = _of_profile(environment)
    return replace(store, **found)


def _of_profile(environment: Mapping[str, str]) -> dict[str, str]:
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials")
    profiles = configparser.ConfigParser(interpolation=None)
    try:
        profiles.read(path.expanduser(), encoding="utf-8")
        profile = profiles[environment.get("AWS_PROFILE", "default")]
    except (KeyError, RuntimeError, configparser.Error):
        return {}
    return {name: profile.get(key, "") for name, key in _KEYS.items()}
