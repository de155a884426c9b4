"""Where a rank's processor time goes until its first step is made, by trainer, on two ranks.

    python benchmarks/first_step.py       (some of them: ... train_ddp train_fsdp)

Seconds of the processor of a rank, medians of some starts, with bytecode compiled. What the framework itself imports
late counts where it does: torch its compiler in the first optimizer or DistributedDataParallel.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from loops.cases import CASES  # noqa: E402
from loops.start_ranks import start_ranks  # noqa: E402
from side_by_side import RESULTS, keep  # noqa: E402

TRAINERS = ("train_ddp", "train_fsdp", "train_lightning", "train_transformers", "train_horovod", "train_horovod_keras")
STARTS = 7


def main() -> None:
    """Measure and keep; a trainer that is not asked for keeps its figures."""
    before = RESULTS / "first_step.json"
    table = json.loads(before.read_text())["table"] if before.is_file() else {}
    for trainer in sys.argv[1:] or TRAINERS:
        found = [parts_of(trainer) for _ in range(STARTS + 1)][1:]  # the first compiles
        table[trainer] = {part: round(statistics.median(one[part] for one in found), 2) for part in found[0]}
        table[trainer]["all"] = round(statistics.median(sum(one.values()) for one in found), 2)
        keep("first_step", [], starts=STARTS, table=table)


def parts_of(trainer: str) -> dict[str, float]:
    """Start two ranks; the parts of that which ended first."""
    case = next(case for case in CASES.values() if case.trainer == trainer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case.write_data(folder / "data")
        given = {"data": folder / "data", **{port: folder / port for port in ("model", "checkpoints", "metrics")}}
        words = [text for key, value in (given | case.arguments).items() for text in (_flag(key), str(value))]
        command = [sys.executable, str(HERE / "loops" / "first_step_rank.py"), trainer, *words]
        log = start_ranks(command, folder, case.launcher)
        parts: dict[str, float] = json.loads(re.findall(r"PARTS (\{.*\})", log)[0])
        return parts


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
