"""Iceberg catalogs as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from gateway.http.models.common import PathText, RecordModel, RequestModel, TextMap, Word


class CatalogModel(RecordModel):
    """A catalog as this process knows it.

    uri, warehouse: without login and query; null for clients who may not add catalogs.
    age_s: of the list of its tables; null: not listed yet.
    error: of the last try to list it; null: none.
    is_added: by a command; else it is of the settings.
    """

    name: str
    type: str
    uri: str | None
    warehouse: str | None
    tables: int
    age_s: float | None
    error: str | None
    remedy: str | None
    is_added: bool


class CatalogList(BaseModel):
    """All Iceberg catalogs."""

    catalogs: list[CatalogModel]


class CatalogRequest(RequestModel):
    """A catalog to add. It has no secret, only the name of what holds it."""

    name: Annotated[Word, Field(min_length=1)]
    type: Word = Field("rest", description="rest or hive.")
    uri: PathText = Field(description="Address at one of catalog.iceberg_uris.")
    warehouse: PathText = ""
    credential_env: Word = Field("", description="Variable of the gateway with the secret, FUSION_CATALOGS_X.")
    credential_file: Word = Field("", description="File of catalog.iceberg_secrets with the secret.")
    properties: TextMap = Field(default_factory=dict, description="Of pyiceberg, such as scope.")
