"""Files of settings in deploy/, as a gateway would use them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel

from engines.adapter import EngineSettings
from gateway import settings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def loaded(file: Path, home: Path) -> settings.Settings:
    """Use a file as a gateway would."""
    shutil.copyfile(file, home / settings.FILE_NAME)
    return settings.load(home)


def require_fields(text: str, section: str, value: object, *, without: Collection[str] = ()) -> None:
    """Require that every setting of a section stands in a file, switched on or off. without: names of some."""
    fields = type(value).model_fields if isinstance(value, BaseModel) else {section: None}
    for name in fields.keys() - set(without):
        inner = getattr(value, name, None)
        if isinstance(inner, BaseModel):
            assert f"\n[{section}.{name}]" in text
            require_fields(text, f"{section}.{name}", inner)
            continue
        assert re.search(rf"^#?{name} = ", text, flags=re.MULTILINE), f"{section}.{name} is missing"


def require_written_out(section: str, kind: type[EngineSettings], home: Path) -> None:
    """Require that an engine's file has all of its settings, with their defaults."""
    file = DEPLOY / f"{section}.toml"
    assert loaded(file, home).section(kind) == kind()
    require_fields(file.read_text(encoding="utf-8"), section, kind())
