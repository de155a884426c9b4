"""What it costs to measure what steps use: a null step with it, against one whose engine does not look; processor time.

python benchmarks/resources.py
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine import ALLRANKS, STEPS, chain
from side_by_side import in_turn, keep

ROUNDS = 10
WITHOUT = """
import sys
from unittest.mock import Mock
from allranks.local import engine, gang
from allranks.cli.main import main

engine.ResourceWatch = Mock
gang.reap_process = lambda process: process.wait() and None
sys.exit(main(sys.argv[1:]))
"""


def processor_seconds() -> float:
    """Of all children that have ended: on a busy machine they wait, but they compute no longer."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, many = chain(folder, 1), chain(folder, STEPS)

        def run(command: Sequence[str], file: Path) -> float:
            options = ["run", str(file), "--no-cache", "--runs-dir", str(folder / "runs")]
            before = processor_seconds()
            subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return processor_seconds() - before

        def step(command: Sequence[str]) -> float:
            return (run(command, many) - run(command, one)) / (STEPS - 1)

        null = in_turn(
            "a further null step",
            ("measured", lambda: step(ALLRANKS)),
            ("not measured", lambda: step([sys.executable, "-c", WITHOUT])),
            rounds=ROUNDS,
            limit="+2 ms",
        )
    added = [1000 * (a - b) for a, b in zip(null.our_seconds, null.their_seconds, strict=True)]
    keep("resources", [null], added_ms_median=round(statistics.median(added), 2))


if __name__ == "__main__":
    main()
