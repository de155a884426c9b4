"""Each trainer's loop against one that is written by hand with the same framework, on two ranks, or one for each GPU.

    python benchmarks/trainer_loops.py            (some of them: ... train_fsdp train_horovod)

Both train the same model on the same rows, in the same processes, ten steps in turn, so that what disturbs one disturbs
both. Compared are the time of the processor, of all ranks and threads, in which a neighbour on the machine hardly
shows, and the time that passes. Ours is the component's own `train`, with its reports, its clocks and its watch over
the other ranks; what stands against it is in benchmarks/loops/, a file for each framework: its loop or Trainer with
what is needed and no more, the rows in memory, and the mean loss of all ranks every ten steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from loops.cases import CASES  # noqa: E402
from loops.start_ranks import gpus, start_ranks  # noqa: E402
from side_by_side import RESULTS, Comparison, keep  # noqa: E402

STARTS, ROUNDS = 7, 2

LIMIT = "1.01"
NAME = "trainer_loops_gpu" if gpus() else "trainer_loops"


def main() -> None:
    """Measure and keep; a case that is not asked for keeps its figures."""
    compared, rates = [], {}
    for trainer in sys.argv[1:] or sorted({case.trainer for case in CASES.values()}):
        for title, found in measure_trainer(trainer).items():
            ours, theirs = found["ours"], found["theirs"]
            compared.append(pair(f"{title}: processor", ours, theirs, 0, trainer))
            compared.append(pair(f"{title}: time that passes", ours, theirs, 1, trainer))
            rates[title] = {
                way: round(CASES[title].steps / statistics.median(wall for _, wall in taken), 1)
                for way, taken in found.items()
            }
    before = RESULTS / f"{NAME}.json"
    kept = json.loads(before.read_text()) if before.is_file() else {"comparisons": [], "steps_per_second": {}}
    new = {one.name for one in compared}
    others = [old for old in kept["comparisons"] if old["name"] not in new]
    compared += [Comparison(**{name: value for name, value in old.items() if name != "ratio"}) for old in others]
    devices = {"gpus": gpus()} if gpus() else {}
    keep(NAME, compared, steps_per_second={**kept["steps_per_second"], **rates}, **devices)


def pair(
    name: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]], which: int, trainer: str
) -> Comparison:
    """One of the two times of both ways."""
    our_seconds, their_seconds = ([taken[which] for taken in way] for way in (ours, theirs))
    is_limited = which == (1 if gpus() else 0)  # a GPU is not waited for by a process that computes meanwhile
    return Comparison(name, trainer, "by hand", our_seconds, their_seconds, LIMIT if is_limited else "")


def measure_trainer(trainer: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Start the ranks, several times, and read what they have measured of each of a trainer's cases."""
    cases = [case for case in CASES.values() if case.trainer == trainer]
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number, case in enumerate(cases):
            case.write_data(Path(name, f"data-{number}"))
        for _ in range(STARTS):
            command = [sys.executable, str(HERE / "loops" / "rank.py"), trainer, name, str(ROUNDS)]
            start_ranks(command, Path(name), cases[0].launcher)
            for title, taken in json.loads(Path(name, "found.json").read_text()).items():
                for way, pairs in taken.items():
                    found.setdefault(title, {}).setdefault(way, []).extend(pairs)
    return found


if __name__ == "__main__":
    main()
