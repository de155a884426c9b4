"""What goes wrong on request: refusals, throttling, a server that hangs up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.azure.stand_in.exchange import Answer, RefusedError
from tests.azure.stand_in.state import State

CODES = {
    401: ("ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than current UTC time."),
    403: ("AuthorizationFailed", "The client does not have authorization to perform action."),
    429: ("TooManyRequests", "The request is being throttled."),
    500: ("InternalServerError", "An internal server error occurred."),
    503: ("ServiceUnavailable", "The service is unavailable."),
}


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        match: regular expression that is looked for in ``METHOD /path?query``. One that begins with ``answer of`` lets
            the request through, and hangs up instead of answering.
        status: the answer's status; 0 hangs up, after half of the body has been read.
        times: for so many matching requests; -1 for all.
        after: so many matching requests are let through first.
        retry_after: seconds in the answer's Retry-After; None for no such header.
        message: in place of the usual text of that status.
    """

    match: str
    status: int
    times: int = -1
    after: int = 0
    retry_after: float | None = None
    message: str = ""

    def answer(self) -> Answer:
        code, text = CODES.get(self.status, ("Fault", "The stand-in was asked to fail."))
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return RefusedError(self.status, code, self.message or text, **headers).answer


def next_fault(state: State, line: str) -> Fault | None:
    """The fault that hits the request ``METHOD /path?query``, counted; None if it goes through."""
    with state.lock:
        for fault in state.faults:
            of_answer = fault.match.startswith("answer of")
            if fault.times == 0 or of_answer != line.startswith("answer of") or not re.search(fault.match, line):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= fault.times > 0
            return fault  # type: ignore[no-any-return]
    return None
