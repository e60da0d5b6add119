from __future__ import annotations

import io
import json

from rich.console import Console

from statsproc.spark.progress import BarReporter, JsonReporter, LineReporter, Reporter


def _run(reporter: Reporter) -> None:
    reporter.progress("books", 0, 0)
    reporter.progress("books", 3, 8)
    reporter.finished("books", "10 rows", rows=10)
    reporter.progress("customers", 1, 2)
    reporter.failed("customers", "gone")
    reporter.done(failed={"customers": "gone"})
    reporter.close()


def test_json_lines_for_programs() -> None:
    stream = io.StringIO()
    _run(JsonReporter(stream))
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"event": "progress", "what": "books", "done": 0, "all": 0},
        {"event": "progress", "what": "books", "done": 3, "all": 8},
        {"event": "finished", "what": "books", "rows": 10},
        {"event": "progress", "what": "customers", "done": 1, "all": 2},
        {"event": "failed", "what": "customers", "error": "gone"},
        {"event": "done", "failed": {"customers": "gone"}},
    ]


def test_one_line_per_step_where_nobody_looks() -> None:
    stream = io.StringIO()
    _run(LineReporter(stream))
    assert stream.getvalue() == "books: 10 rows\ncustomers: failed: gone\n"


def test_bars_make_room_for_lines() -> None:
    stream = io.StringIO()
    _run(BarReporter(Console(file=stream, force_terminal=True, width=80)))
    written = stream.getvalue()
    assert "0/?" in written  # a bar of a length that is not known yet
    assert written.index("books: 10 rows") < written.index("customers: failed: gone")
    assert "books" not in written[written.index("customers: failed: gone") :]
