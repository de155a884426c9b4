"""How a training ends whose storage is full: it fails only if it ends without a save.

A training that has made all its steps ends well if its model is written, whether or not the last checkpoint is: nobody
goes on from there. One that is stopped before ends as any that is stopped (143) if a whole checkpoint is there, and
says of which step; it fails (1) if there is none, since what it has done is lost. Metrics and logs that cannot be
written are said to be lacking, and end nothing.
"""

from __future__ import annotations

import json
import re
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
    """Say why a training fails whose model storage does not take, or has no room for; None for other errors.

    `last` is the step of the newest checkpoint, None if there is none. What there is of the model is removed by the
    rank that `clears`: whoever started it may lack the room to say what has happened.
    """
    cause, said = _said_by_storage(error)
    if cause is None or not may_pass(cause):
        return None
    if clears:
        with suppress(OSError):
            for path in list_folder(model):
                (remove_folder if path.is_dir() else remove_file)(path)
    free = free_bytes(model)
    known = "" if free is None else f", where {in_bytes(free)} are free"
    begins = "begins anew: there is no checkpoint" if last is None else f"goes on from the checkpoint of step {last}"
    mend = "Make room there" if is_full(cause) else "See to that storage"
    return UnsavedError(
        f"The training has ended without its model: {said}. It belongs into {model}{known}. {mend}, and start again "
        f"with the same checkpoints folder: it {begins}."
    )


_ERROR_NUMBER = re.compile(r"\[Errno (\d{1,4})\]")


def _said_by_storage(error: BaseException) -> tuple[OSError | None, str]:
    """The error of the system behind one, and its words: of what another rank has met there are only these."""
    if isinstance(error, OSError):
        return error, str(error)
    found = _ERROR_NUMBER.match(error.error_message) if isinstance(error, OnceError) else None
    return (OSError(int(found[1]), ""), error.error_message) if isinstance(error, OnceError) and found else (None, "")


def write_numbers(folder: Path, document: Mapping[str, Any]) -> None:
    """Write `metrics.json` into a folder; a storage that does not take it is said, and ends nothing."""
    try:
        make_folder(folder)
        write_text(folder / "metrics.json", json.dumps(document, indent=2) + "\n")
    except OSError as error:
        if not may_pass(error):
            raise
        print_line(f"warning: {folder / 'metrics.json'} could not be written: {error}")
