"""JSON replies, in which every number is one."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.responses import Response

from gateway.presentation.json_values import json_value


class ExactJSONResponse(JSONResponse):
    """JSON as RFC 8259 has it: what is no finite number is a text, ``"Infinity"``, ``"-Infinity"`` or ``"NaN"``."""

    def render(self, content: Any) -> bytes:
        """Write a reply; few have such numbers, so it is tried without a look at each value first."""
        try:
            return super().render(content)
        except ValueError:
            return super().render(json_value(content))


class ModelResponse(Response):
    """A model as JSON, written at once: its numbers that are none are texts, too, which its configuration says."""

    media_type = "application/json"

    def render(self, content: BaseModel) -> bytes:
        """Write a reply."""
        return content.model_dump_json().encode()
