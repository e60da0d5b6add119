"""Failures: the part of an exception that clients see. The classes of errors are in ``errors.py``.

This module knows the metastore's library. ``errors.py`` does not: the processes of planners import it.
"""

from __future__ import annotations

import logging

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from engines.files.listing import InspectionFailed
from gateway.errors import InternalError, MetastoreUnavailable, NoEngineAvailable
from selector.decision import NoEngine
from sql.errors import Failure, FusionError, TableUnreadable

log = logging.getLogger(__name__)

DEFECT = InternalError("The gateway failed; its log says why.").failure
NO_METASTORE = MetastoreUnavailable("The metastore does not answer; try again soon.").failure
MAPPED = (FusionError, NoEngine, InspectionFailed, SQLAlchemyError)
"""Errors that clients may see. Any other exception is a defect."""


def failure_of(error: Exception) -> Failure:
    """Return the part of an error that clients see; of a defect, which goes to the log, nothing."""
    match error:
        case FusionError():
            return error.failure
        case NoEngine():
            return NoEngineAvailable(f"No engine can take it: {error}").failure
        case InspectionFailed():
            return TableUnreadable(str(error)).failure
        case OperationalError() | InterfaceError():
            log.warning("the metastore does not answer: %s", error.orig)  # once for each statement until it does
            return NO_METASTORE
        case SQLAlchemyError():
            log.error("the metastore failed", exc_info=error)
            return NO_METASTORE
        case _:
            log.error("a call failed", exc_info=error)
            return DEFECT
