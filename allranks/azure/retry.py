"""Patience with a service that is busy: back-off, ``Retry-After``, connections that are lost.

The SDK tries a request again three times within some five seconds, which a throttled service outlasts; and it does not
repeat a POST. Everything that is sent here can be sent again: a version that is there with the same body is left as it
is, and files whose upload was cut off are uploaded anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import TypeVar

from allranks.azure.explain import TRANSIENT_STATUSES, error_chain

RETRY_SECONDS = 300.0
"""Seconds after which a service that is still busy is given up."""

LONGEST_BACKOFF = 60.0
"""Seconds between two attempts at most, unless the service asks for more."""

_T = TypeVar("_T")


def call_with_retry(
    attempt: Callable[[], _T],
    tell: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Call ``attempt`` until it succeeds, fails for good, or ``RETRY_SECONDS`` are over.

    It sends what can be sent again; ``tell`` hears in one line why that will be done, and when. What the last attempt
    raised is raised.
    """
    end = clock() + RETRY_SECONDS
    numbers = count()
    while True:
        try:
            return attempt()
        except Exception as error:
            pause = backoff_seconds(error, next(numbers))
            if pause is None or clock() + pause > end:
                raise
            tell(f"{_reason(error)}; trying again in {pause:.0f} s")
            sleep(pause)


def backoff_seconds(error: BaseException, number: int) -> float | None:
    """Seconds to wait after the attempt with this number, from 0; None for an error that time does not mend."""
    from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

    backoff = min(LONGEST_BACKOFF, 2.0 ** (number + 1))
    for cause in error_chain(error):
        if isinstance(cause, HttpResponseError):
            # The storage says so of a file that an upload which was cut off left behind; the next attempt sees that
            # the upload was never confirmed, and overwrites it.
            left_over = getattr(cause, "error_code", None) == "BlobAlreadyExists" and number == 0
            if cause.status_code in TRANSIENT_STATUSES or left_over:
                asked = _asked_for(cause)
                return asked if asked > 0 else backoff
            return None
        if isinstance(cause, ServiceRequestError | ServiceResponseError):
            return backoff
    return None


def _asked_for(error: BaseException) -> float:
    """The seconds that ``Retry-After`` asks for, in seconds or as a date; 0 if it does not."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    written = str(headers.get("Retry-After", ""))
    with suppress(ValueError):
        return float(written)
    with suppress(ValueError):
        return (parsedate_to_datetime(written) - datetime.now(UTC)).total_seconds()
    return 0.0


def _reason(error: BaseException) -> str:
    status = next((status for cause in error_chain(error) if (status := getattr(cause, "status_code", None))), None)
    if status == 429:
        return "the service asks for patience (429)"
    if status == 409:
        return "a part of the files is there already, from an upload that was cut off"
    return f"the service is not well ({status})" if status else "the connection was lost"
