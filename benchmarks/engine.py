"""What the engine costs: a null step against the shell, `allranks list` against importing yaml, the parent's memory.

python benchmarks/engine.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import Comparison, in_turn, keep, peak_mebibytes_of_children, seconds

STEPS = 20
ALLRANKS = [sys.executable, "-m", "allranks"]


def chain(folder: Path, steps: int) -> Path:
    """A pipeline of steps that do nothing, each after the one before."""
    lines = ["type: pipeline", "jobs:"]
    step = (
        "  s{}: {{type: command, command: 'true', environment: azureml:none:1, outputs: {{out: {{type: uri_folder}}}}"
    )
    for number in range(steps):
        previous = f", inputs: {{before: '${{{{parent.jobs.s{number - 1}.outputs.out}}}}'}}" if number else ""
        lines.append(step.format(number) + previous + "}")
    path = folder / f"chain_{steps}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, many = chain(folder, 1), chain(folder, STEPS)

        def engine(file: Path) -> float:
            command = [*ALLRANKS, "run", str(file), "--no-cache", "--runs-dir", str(folder / "runs")]
            return seconds(
                lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )

        def shell(steps: int) -> float:
            script = "; ".join(["bash -c true"] * steps)
            return seconds(lambda: subprocess.run(["bash", "-c", script], check=True))

        def engine_step() -> float:
            return (engine(many) - engine(one)) / (STEPS - 1)

        def shell_step() -> float:
            return (shell(STEPS) - shell(1)) / (STEPS - 1)

        null = in_turn("a further null step", ("engine", engine_step), ("shell", shell_step), rounds=7, limit="+15 ms")
        memory = _parent_memory(many, folder)

    def start(*command: str) -> float:
        return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    listing = in_turn(
        "start of the command line",
        ("allranks list", lambda: start(*ALLRANKS, "list")),
        ("python -c 'import yaml'", lambda: start(sys.executable, "-c", "import yaml")),
        rounds=15,
        limit="4x",
    )
    keep("engine", [null, listing], added_ms_for_a_null_step=_added(null), parent_peak_mib=memory)


def _added(null: Comparison) -> float:
    pairs = sorted(a - b for a, b in zip(null.our_seconds, null.their_seconds, strict=True))
    return round(1000 * pairs[len(pairs) // 2], 1)


def _parent_memory(file: Path, folder: Path) -> float:
    """The engine is the only large process below this one: bash and true need a few MiB."""
    command = [*ALLRANKS, "run", str(file), "--no-cache", "--runs-dir", str(folder / "memory")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return round(peak_mebibytes_of_children(), 1)


if __name__ == "__main__":
    main()
