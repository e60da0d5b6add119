"""Statements of earlier runs, in a file that only its user can read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

VARIABLE, STATE_HOME = "FUSION_SHELL_HISTORY", "XDG_STATE_HOME"
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


def history_file() -> Path:
    """Return the file that FUSION_SHELL_HISTORY names, else the one in the user's state folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    state = os.environ.get(STATE_HOME)
    return (Path(state) if state else Path.home() / ".local" / "state") / "fusion" / "history"


class PrivateHistory(FileHistory):
    """History in a file of mode 0600. Where that cannot be used, statements are remembered until the shell ends."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._file = file
        self._is_usable = True
        self._problem: str | None = None
        try:
            file.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_APPEND | os.O_CREAT | os.O_RDWR, PRIVATE_FILE))
            if file.is_file():
                file.chmod(PRIVATE_FILE)
        except OSError as error:
            self._give_up(error)

    def load_history_strings(self) -> Iterable[str]:
        """Return earlier statements, the last one first."""
        if not self._is_usable:
            return ()
        try:
            return super().load_history_strings()
        except OSError as error:
            self._give_up(error)
            return ()

    def store_string(self, string: str) -> None:
        """Append a statement to the file."""
        if not self._is_usable:
            return
        try:
            super().store_string(string)
        except OSError as error:
            self._give_up(error)

    def pop_problem(self) -> str | None:
        """Return once why the file cannot be used; None: it can, or that was told."""
        problem, self._problem = self._problem, None
        return problem

    def _give_up(self, error: OSError) -> None:
        self._is_usable = False
        self._problem = (
            f"the history in {self._file} cannot be used: {error.strerror}; statements are forgotten when the shell "
            f"ends; {VARIABLE} names another file"
        )
