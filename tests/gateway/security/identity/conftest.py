"""A provider and a directory for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.security.identity.provider import OidcProvider, installed, running
from tests.gateway.security.identity.slapd import Slapd, slapd_in


@pytest.fixture(scope="session")
def provider_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("oidc-provider"))


@pytest.fixture
def provider(provider_folder: Path) -> Iterator[OidcProvider]:
    with running(provider_folder) as served:
        yield served


@pytest.fixture
def slapd(tmp_path: Path) -> Iterator[Slapd]:
    with slapd_in(tmp_path / "slapd") as served:
        yield served
