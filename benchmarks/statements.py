"""Anyone's statements: a JSON list, or SQL text with names in comments."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claim import RunFailed

_NAME = re.compile(r"^-- (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Named:
    """One statement. name: from the comment line ``-- name`` before it, else its place in the file."""

    name: str
    sql: str

    @property
    def is_fitted(self) -> bool:
        """Whether constants may be fitted to it: an even CRC-32 of its name. The others only test what was fitted."""
        return zlib.crc32(self.name.encode()) % 2 == 0


def read_statements(file: Path) -> list[Named]:
    """Read a JSON list of {"sql"}, where each may have a "name", or statements of SQL that ``;`` ends."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        try:
            return [
                Named(str(one.get("name", f"{file.stem}-{place}")), str(one["sql"]).rstrip().rstrip(";"))
                for place, one in enumerate(json.loads(text), 1)
            ]
        except (ValueError, TypeError, KeyError, AttributeError) as failure:
            raise RunFailed(f'{file} is no JSON list of {{"sql"}}') from failure
    found: list[Named] = []
    for part in re.split(r";\s*(?:\n|$)", text):
        names = _NAME.findall(part)
        sql = "\n".join(line for line in part.splitlines() if not line.startswith("--")).strip()
        if sql:
            found.append(Named(names[-1] if names else f"{file.stem}-{len(found) + 1}", sql))
    return found


def read_all(files: Sequence[Path]) -> list[Named]:
    """Read several files; a name may occur once."""
    statements = [statement for file in files for statement in read_statements(file)]
    names = [statement.name for statement in statements]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RunFailed(f"names that occur twice: {', '.join(twice)}")
    return statements
