"""What ranks note of themselves where neither the engine nor their launcher can tell it: mpirun starts them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.resources.usage import UsedCounters, parse_counters
from allranks.local.warm.mpi_rank import LOST


def rank_notes(folder: StepFolder) -> Path:
    """Where they lie, named by ranks: /proc/PID/stat and then /proc/PID/io of who has waited for it."""
    return folder.path / "nodes" / "launch" / "uses"


def fork_notes(folder: StepFolder) -> Path:
    """Where each of them that was forked notes its process, named by ranks; see ``warm/mpi_rank.py``."""
    return folder.path / "nodes" / "launch" / "forked"


def read_forked_ranks(folder: StepFolder) -> set[int]:
    """The processes that were forked and have not ended."""
    return {int(text) for text in _fork_notes(folder) if text.isdigit()}


def has_lost_template(folder: StepFolder) -> bool:
    """Whether a rank has ended because what it was forked from did."""
    return LOST in _fork_notes(folder)


def _fork_notes(folder: StepFolder) -> list[str]:
    texts = []
    for note in fork_notes(folder).glob("*"):
        with suppress(FileNotFoundError):  # it has ended in this moment
            texts.append(note.read_text())
    return texts


def read_rank_uses(folder: StepFolder) -> dict[int, UsedCounters]:
    """What each rank that has ended had used by then; none of ranks that the engine has started itself."""
    notes = {int(note.name): note.read_bytes() for note in rank_notes(folder).glob("*")}
    return {rank: parse_counters(*note.split(b"\n", 1)) for rank, note in notes.items() if b"\n" in note}
