"""One statement that runs on Spark, and how it is interrupted."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from engines.errors import EngineError
from engines.protocol import Snapshots
from engines.running_statement import RunningStatement
from engines.spark.errors import spark_errors
from sql.tables import TableSource

if TYPE_CHECKING:
    from engines.spark_sql.connect import ConnectSession

_WAIT_STEP_S = 0.05
_INTERRUPT_FOR_S = 5.0


class SparkStatement(RunningStatement):
    """One running statement, with the tag by which its session interrupts it."""

    def __init__(
        self,
        query_id: str,
        deadline_s: float,
        tables: tuple[TableSource, ...],
        *,
        careful: bool = False,
    ) -> None:
        super().__init__(query_id, deadline_s)
        self.tables = tables
        self.careful = careful
        self.snapshots: Snapshots = ()
        self.tag = f"fusion-{uuid.uuid4().hex}"
        self.inside = False  # past the gate
        self.alone = True  # no other statement ran at the same time
        self.session: ConnectSession | None = None
        self.complete = False  # all rows were read or written

    def use(self, session: ConnectSession, *, break_off: Callable[[], None]) -> None:
        """Set the session that ``end`` interrupts, and breaks off if that does not help."""
        self.session = session
        self.stop_by(lambda: self._begin_interrupt(session), break_off=break_off)

    def _begin_interrupt(self, session: ConnectSession) -> None:
        """Interrupt the statement in its own thread, so that the caller does not wait for the server."""
        threading.Thread(target=self._interrupt, args=(session,), name=f"interrupt {self.tag}", daemon=True).start()

    def _interrupt(self, session: ConnectSession) -> None:
        give_up_s = time.monotonic() + _INTERRUPT_FOR_S
        try:
            with spark_errors():
                # An interrupt that arrives before its statement stops nothing.
                while not session.interrupt(self.tag) and time.monotonic() < give_up_s:
                    if self.finished.wait(_WAIT_STEP_S):
                        return
        except EngineError:
            return  # the reader of the result gets the same error, and reports it
