"""A provider for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.security.identity.provider import OidcProvider, installed, running


@pytest.fixture(scope="session")
def provider_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("oidc-provider"))


@pytest.fixture
def provider(provider_folder: Path) -> Iterator[OidcProvider]:
    with running(provider_folder) as served:
        yield served
