"""The log of a server that answers monitors and browsers: what is no request takes one line, and no traceback.

aiohttp reports what it cannot parse, a header that is too large for example, as it would a defect. No key is needed to
send such a thing.
"""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

MAX_QUOTED = 120
"""Characters quoted of what cannot be parsed."""

SERVER_LOG = logging.getLogger("fedsilo.http")
"""The logger of `aiohttp.web.AppRunner(app, logger=SERVER_LOG)`."""


def _in_one_line(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "refused what is no request: %s", (ascii(error.message)[1:-1][:MAX_QUOTED],)
        record.exc_info = None
    return True


SERVER_LOG.addFilter(_in_one_line)
