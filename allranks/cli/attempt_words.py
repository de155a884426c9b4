"""What is said of the attempts of a step while a run goes on."""

from __future__ import annotations

from allranks.local.result import StepResult
from allranks.redaction import redact
from allranks.wording import duration_words


def attempt_words(step: StepResult, retries: int | None) -> str:
    """``attempt 2 of 3``; without a number of retries that was asked for there is none to name."""
    return f"attempt {step.attempts}" + ("" if retries is None else f" of {1 + retries + step.aborts_at_exit}")


def retrying_words(step: StepResult, retries: int | None) -> str:
    """What is said of an attempt that has failed and is followed by another one: why, and when that begins."""
    failure = step.failure
    causes = (failure.cause, failure.message) if failure is not None else ()
    why = redact(": ".join(filter(None, causes)))
    when = "now" if step.next_attempt is None else f"in {duration_words(step.next_attempt)}"
    return f"{attempt_words(step, retries)} failed ({why}), attempt {step.attempts + 1} {when}"
