"""Moments as people write them: 2026-11-30, 2026-11-30T08:00, 7d, 12h, 30m."""

import re
from datetime import UTC, datetime, timedelta

from foldline.cli.failures import UsageError

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

WANTED = "a date or time (UTC without an offset), or how long ago, as in 7d, 12h, 30m"


def moment_us(option: str, text: str, *, now: datetime | None = None) -> int:
    """A moment in microseconds since 1970 UTC.

    Args:
        option: for the message.
        text: what was given.
        now: what "ago" is counted from.

    Raises:
        UsageError: it is none.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            span = timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            moment = (now or datetime.now(UTC)) - span
        else:
            moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError) as error:
        raise UsageError(option, WANTED) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)
