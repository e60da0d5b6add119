"""News of other members, at once where the database can tell: PostgreSQL does, SQLite is looked at more often."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from metastore.members.membership import CHANNEL, Membership

log = logging.getLogger(__name__)

AGAIN_S = 1.0  # after a connection was lost
LOOK_S = 0.2  # between two looks at whether to stop


class News:
    """A thread that listens. on_news: is called when another member has news."""

    def __init__(self, membership: Membership, on_news: Callable[[], object]) -> None:
        self._membership = membership
        self._on_news = on_news
        self._thread = threading.Thread(target=self._listen, name="news", daemon=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Listen until ``stop``; do nothing where the database tells no news."""
        if self._membership.tells_news:
            self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _listen(self) -> None:
        import psycopg  # comes with the extra of this database

        arguments, keywords = self._membership.connect_arguments()
        while not self._stopped.is_set():
            try:
                with psycopg.connect(*arguments, autocommit=True, **keywords) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._stopped.is_set():
                        for news in connection.notifies(timeout=LOOK_S, stop_after=1):
                            if news.payload != self._membership.current:
                                self._on_news()
            except psycopg.Error as error:
                log.warning("the metastore tells no news: %s", error)
                self._stopped.wait(AGAIN_S)
