"""What ranks note of themselves where neither the engine nor their launcher can tell it: mpirun starts them."""

from __future__ import annotations

from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.resources.usage import UsedCounters, parse_counters


def rank_notes(folder: StepFolder) -> Path:
    """Where they lie, named by ranks: /proc/PID/stat and then /proc/PID/io of who has waited for it."""
    return folder.path / "nodes" / "launch" / "uses"


def read_rank_uses(folder: StepFolder) -> dict[int, UsedCounters]:
    """What each rank that has ended had used by then; none of ranks that the engine has started itself."""
    notes = {int(note.name): note.read_bytes() for note in rank_notes(folder).glob("*")}
    return {rank: parse_counters(*note.split(b"\n", 1)) for rank, note in notes.items() if b"\n" in note}
