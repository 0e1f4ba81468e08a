"""Times as a person reads them: `since 14:02:11 (3 min ago)`, in the reader's own time zone."""

from __future__ import annotations

from datetime import datetime

from fedsilo.api.timestamps import parse_timestamp

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """A length of time in its largest units: `12 s`, `3 min`, `5 h 20 min`, `3 days`."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        hours, minutes = whole // _HOUR, whole % _HOUR // _MINUTE
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{whole // _DAY} days"


def clock(text: str, now: datetime) -> str:
    """The time of day where `now` is; with the date when it is another day."""
    local = parse_timestamp(text).astimezone(now.tzinfo)
    return f"{local:%H:%M:%S}" if local.date() == now.date() else f"{local:%Y-%m-%d %H:%M:%S}"


def since_text(text: str, now: datetime) -> str:
    """`since 14:02:11 (3 min ago)`."""
    return f"since {clock(text, now)} ({duration(age(text, now))} ago)"


def moment_text(text: str, now: datetime) -> str:
    """`at 14:02:11 (3 min ago)`."""
    return f"at {clock(text, now)} ({duration(age(text, now))} ago)"


def until_text(text: str, now: datetime) -> str:
    """`until 14:12:11 (in 6 min)`, or how long ago that was."""
    past = age(text, now)
    return f"until {clock(text, now)} ({f'{duration(past)} ago' if past > 0 else f'in {duration(-past)}'})"


def age(text: str, now: datetime) -> float:
    """Seconds from that time to now."""
    return (now - parse_timestamp(text)).total_seconds()
