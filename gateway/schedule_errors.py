"""What can be wrong with a schedule, or with what is asked of it.

ScheduleError
  ScheduleInvalid     cannot be as it was asked for
    UnknownTimeZone   no such time zone
  ScheduleUnknown     no schedule of this name
  ScheduleTaken       its name belongs to another one
  SchedulePaused      does not run before it is resumed
"""

from __future__ import annotations

from typing import ClassVar


class ScheduleError(Exception):
    """Base. The message is for the person who asked."""

    code: ClassVar[str] = "SCHEDULE_ERROR"


class ScheduleInvalid(ScheduleError):
    """A schedule cannot be as it was asked for; the message says what is wrong with it."""

    code = "INVALID_SCHEDULE"


class UnknownTimeZone(ScheduleInvalid):
    """There is no time zone of this name."""

    code = "UNKNOWN_TIME_ZONE"


class ScheduleUnknown(ScheduleError):
    """There is no schedule of this name."""

    code = "NOT_FOUND"


class ScheduleTaken(ScheduleError):
    """A schedule of this name is there already."""

    code = "SCHEDULE_EXISTS"


class SchedulePaused(ScheduleError):
    """It is paused: somebody wants it not to run."""

    code = "SCHEDULE_PAUSED"
