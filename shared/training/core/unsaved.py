"""How a training ends whose storage is full: it fails only if it ends without a save.

A training that has made all its steps ends well if its model is written, whether or not the last checkpoint is: nobody
goes on from there. One that is stopped before ends as any that is stopped (143) if a whole checkpoint is there, and
says of which step; it fails (1) if there is none, since what it has done is lost. Metrics and logs that cannot be
written are said to be lacking, and end nothing.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shared.checkpoint.room import FailedSave, free_bytes, in_bytes
from shared.distributed import OnceError, UnsavedError
from shared.distributed.errors import print_line
from shared.storage import is_full, list_folder, make_folder, may_pass, remove_file, remove_folder, write_text


def stopped_line(step: int, folder: Path, failure: FailedSave | None) -> str:
    """Say what a training that is stopped after a step goes on from.

    Raises:
        UnsavedError: there is no whole checkpoint in the folder.
    """
    if failure is None:
        return f"stopped by SIGTERM after step {step}; start again with the same checkpoints folder"
    why = failure.explain(folder)
    if failure.kept is None:
        raise UnsavedError(
            f"The training was stopped by SIGTERM after step {step}, and nothing of it is saved: {why}. Make room "
            "there, and start again from the beginning."
        )
    return (
        f"stopped by SIGTERM after step {step}, which is not saved: {why}; make room there, and start again with the "
        f"same checkpoints folder: it goes on from step {failure.kept}"
    )


def explain_unsaved(error: BaseException, model: Path, last: int | None, *, clears: bool) -> UnsavedError | None:
    """Say why a training fails whose model finds no room; None for other errors.

    `last` is the step of the newest checkpoint, None if there is none. What there is of the model is removed by the
    rank that `clears`: whoever started it may lack the room to say what has happened.
    """
    if isinstance(error, OSError) and is_full(error):
        said = str(error)
    elif isinstance(error, OnceError) and error.error_message.startswith(_FULL_TEXTS):
        said = error.error_message
    else:
        return None
    if clears:
        with suppress(OSError):
            for path in list_folder(model):
                (remove_folder if path.is_dir() else remove_file)(path)
    free = free_bytes(model)
    known = "" if free is None else f", where {in_bytes(free)} are free"
    begins = "begins anew: there is no checkpoint" if last is None else f"goes on from the checkpoint of step {last}"
    return UnsavedError(
        f"The training has ended without its model: {said}. It belongs into {model}{known}. Make room there, and start "
        f"again with the same checkpoints folder: it {begins}."
    )


_FULL_TEXTS = tuple(f"[Errno {number}]" for number in (errno.ENOSPC, errno.EDQUOT))


def write_numbers(folder: Path, document: Mapping[str, Any]) -> None:
    """Write `metrics.json` into a folder; a storage that does not take it is said, and ends nothing."""
    try:
        make_folder(folder)
        write_text(folder / "metrics.json", json.dumps(document, indent=2) + "\n")
    except OSError as error:
        if not may_pass(error):
            raise
        print_line(f"warning: {folder / 'metrics.json'} could not be written: {error}")
