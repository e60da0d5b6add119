"""A text in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

USUAL_EDITOR = "vi"


class EditorFailed(Exception):
    """An editor did not start, or ended with an error."""


def edited(text: str) -> str:
    """Let the user change a text with VISUAL or EDITOR, and return it. Raises EditorFailed."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or USUAL_EDITOR
    with tempfile.TemporaryDirectory(prefix="fusion-") as folder:  # which only its user can read
        file = Path(folder) / "statement.sql"
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*shlex.split(command), str(file)], check=False).returncode
            if code:
                raise EditorFailed(f"the editor {command} ended with code {code}; the statement stays as it was")
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise EditorFailed(f"the editor {command} cannot be used: {error}; EDITOR names another one") from error
