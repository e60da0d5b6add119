"""JSON replies without NaN and infinities, which JSON does not have."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from gateway.presentation.values.json_values import json_value


class ExactJSONResponse(JSONResponse):
    """JSON by RFC 8259: numbers that are not finite are texts, ``"Infinity"``, ``"-Infinity"`` or ``"NaN"``."""

    def render(self, content: Any) -> bytes:
        """Encode a reply. Few have such numbers, so each value is only checked after a failure."""
        try:
            return super().render(content)
        except ValueError:
            return super().render(json_value(content))


class ModelResponse(Response):
    """A model as JSON. Its configuration writes numbers that are not finite as texts, too."""

    media_type = "application/json"

    def render(self, content: BaseModel) -> bytes:
        """Encode a reply."""
        return content.model_dump_json().encode()
