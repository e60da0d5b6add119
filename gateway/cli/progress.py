"""Progress bars on standard error: for everything that a person waits longer than two seconds for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(what: str, *, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Show a bar and yield a function that sets how far it is; silent where nobody looks."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def job_bars() -> Iterator[Callable[[Any], None]]:
    """Show a bar per table of a statistics job, of files, and yield a function that takes the job as the API shows it.

    Where nobody looks, a line per table is written at its end instead.
    """
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, Any] = {}
        ended: set[str] = set()

        def tell(job: Any) -> None:
            for table in job["progress"]:
                name = table["table"]
                if name not in tasks:
                    tasks[name] = progress.add_task(name, total=None)
                over = table["state"] in ("FINISHED", "FAILED", "CANCELLED")
                files = table["files_all"] or None
                progress.update(tasks[name], completed=table["files_done"], total=files or (0 if over else None))
                if over and name not in ended:
                    ended.add(name)
                    progress.stop_task(tasks[name])
                    if progress.disable:
                        done = f"{table['rows']:,} rows, {table['seconds']:.1f} s" if not table["error"] else "failed"
                        console.print(f"{name}: {done}", markup=False, highlight=False)

        yield tell
