"""How a rank ends that cannot go on: what it leaves behind, what it tells the others, and its exit code."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from shared.distributed.control import Control
from shared.distributed.errors import ControlError, Refusal, print_line
from shared.distributed.launch import Launch

_EXIT_REFUSED = 2  # exit code
_FAREWELL_SECONDS = 0.4  # others may still ask rank 0 why it fails; the launcher hears of it when it has ended
_CAUSE_FIRST_SECONDS = 2.0  # launchers report the log of the rank that ends first, and that is to have the reason


def end_badly(error: BaseException, launch: Launch, control: Control | None) -> None:
    """Tell the others and leave, without any collective.

    A ``Refusal`` becomes exit code 2, after rank 0 has printed it. Anything else is written to
    ``logs/error_rank_<rank>.json``, and the caller raises it again.

    Raises:
        SystemExit: the error is a ``Refusal``.
    """
    if isinstance(error, Refusal):
        if control is not None:
            control.refuse(str(error))
            control.leave(grace=5.0)
        if launch.rank != 0:
            time.sleep(_CAUSE_FIRST_SECONDS)
        raise SystemExit(_EXIT_REFUSED) from None
    if isinstance(error, Exception):
        _write_error_file(error, launch)
    if control is not None:
        cause = control.fail(error)
        if cause is not None and not isinstance(error, ControlError):  # a framework knows only that somebody is gone
            print_line(f"distributed: before this, {cause}")
        control.leave(_FAREWELL_SECONDS)
        if cause is not None:  # another rank has failed before, and may still be writing its traceback
            time.sleep(_CAUSE_FIRST_SECONDS)


def _write_error_file(error: BaseException, launch: Launch) -> None:
    """Write ``logs/error_rank_<rank>.json``: time (epoch seconds), rank, node, type, message and traceback."""
    role = "rank" if launch.role == "worker" else launch.role
    path = Path("logs", f"error_{role}_{launch.rank}.json")
    content = {
        "time": time.time(),
        "rank": launch.rank,
        "node": launch.node_rank,
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        print(f"warning: {path} could not be written: {problem}", file=sys.stderr, flush=True)
