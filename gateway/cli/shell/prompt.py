"""The line editor: several lines a statement, colours, history and completion."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import create_output
from pygments.lexers.sql import SqlLexer

from gateway.cli.shell.commands import COMMANDS, SIGN, is_command
from gateway.cli.shell.completion import Suggestion, suggestions, word_before
from gateway.cli.shell.session import Session, Shell
from gateway.cli.text.script import ends_statement
from gateway.statements import AUTO

CONTINUATION = "-> "


@lru_cache(maxsize=16)
def is_complete(text: str, dialect: str) -> bool:
    """Tell whether Enter sends a text: it is empty, a command, or ends with the semicolon of a statement."""
    return not text.strip() or is_command(text) or ends_statement(text, dialect)


def prompt_text(session: Session) -> str:
    """Return the prompt: the database, and the engine where one was chosen."""
    return f"{session.database}{'' if session.engine == AUTO else f'[{session.engine}]'}> "


def line_editor(shell: Shell, history: History) -> PromptSession[str]:
    """Return the editor that a shell reads its statements with."""

    def is_unfinished() -> bool:  # of the statement, also while a search in the history has a buffer of its own
        return not is_complete(editor.default_buffer.text, shell.session.dialect)

    editor: PromptSession[str] = PromptSession(
        history=history,
        lexer=PygmentsLexer(SqlLexer),
        completer=ShellCompleter(shell),
        complete_while_typing=False,
        multiline=Condition(is_unfinished),
        prompt_continuation=lambda width, *_: CONTINUATION.rjust(width),
        enable_open_in_editor=True,
        enable_suspend=True,
        tempfile_suffix=".sql",
        output=create_output(always_prefer_tty=True),
    )
    return editor


class ShellCompleter(Completer):
    """Completes statements and commands of a shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield ways to complete the word before the cursor."""
        before, after = document.text_before_cursor, document.text_after_cursor
        if before.lstrip().startswith(SIGN):
            typed, choices = self._of_command(before.lstrip())
        else:
            session = self._shell.session
            typed = word_before(before).rpartition(".")[2]
            choices = suggestions(before, after, session.dialect, session.database, self._shell.names.latest)
        for choice in choices:
            yield Completion(choice.text, start_position=-len(typed), display_meta=choice.kind)

    def _of_command(self, before: str) -> tuple[str, list[Suggestion]]:
        """Return the part of a command that is typed, and ways to complete it."""
        name, space, argument = before.partition(" ")
        if not space:
            return name, [
                Suggestion(other, command.does) for other, command in COMMANDS.items() if other.startswith(name)
            ]
        argument = argument.lstrip()
        command = COMMANDS.get(name)
        values = command.values(self._shell.names.latest) if command else ()
        return argument, [Suggestion(value, "") for value in values if value.startswith(argument.lower())]
