"""Run `make test` in continuous integration; run a few failures again, alone.

    python -m tools.ci_tests PHASE=SECONDS ...

At most three failures, none of them marked `race`, run once more in one process. Tests that pass then are printed below
`FLAKY` with both outputs. The last line is always pytest's summary, below the seconds of each phase.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

MOST_FAILURES = 3
PYTEST = (sys.executable, "-m", "pytest", "-q")
_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_NOTHING_COLLECTED = 5


def main(phases: Sequence[str]) -> int:
    """Run the tests, repeat a few failures, and return the exit code."""
    _FAILED.unlink(missing_ok=True)
    began = time.monotonic()
    lines: list[str] = []
    code, summary = echo(("make", "test"), lines)
    if code and (again := tests_to_repeat()):
        failures = "".join(lines)
        print(summary)
        print(f"Run again, alone: {', '.join(again)}", flush=True)
        code, summary = echo((*PYTEST, "-rA", *again), [])
        if not code:
            print(f"\nFLAKY: {', '.join(again)}. The first output:\n{failed_part(failures)}")
    print("\n" + "  ".join((*phases, f"tests={time.monotonic() - began:.0f}")) + " seconds")
    print(summary)
    return code


def echo(command: Sequence[str], lines: list[str]) -> tuple[int, str]:
    """Run a command, print its output, and return its exit code and the summary, which is not printed yet."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        for line in without_summary(process.stdout, lines):
            print(line, end="", flush=True)
    return process.returncode, next((line.rstrip() for line in reversed(lines) if is_summary(line)), lines[-1].rstrip())


def without_summary(output: Iterable[str], lines: list[str]) -> Iterator[str]:
    """Append all lines to `lines`, and yield all but pytest's summary."""
    for line in output:
        lines.append(line)
        if not is_summary(line):
            yield line


def is_summary(line: str) -> bool:
    """Return whether this is pytest's last line, such as ``2 failed, 31 passed in 4.05s``."""
    return " in " in line and line.strip("= \n")[:1].isdigit() and any(word in line for word in (" passed", " failed"))


def tests_to_repeat() -> list[str]:
    """Return the ids of failed tests; [] if there are too many, collection failed, or one is marked `race`."""
    failed: list[str] = list(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    if len(failed) > MOST_FAILURES or any("::" not in test for test in failed):
        return []
    marked = [*PYTEST, "--collect-only", "-m", "race", *failed]
    return [] if subprocess.run(marked, capture_output=True, check=False).returncode != _NOTHING_COLLECTED else failed


def failed_part(output: str) -> str:
    """Return the part of pytest's output about failures."""
    return output[max(output.find(" FAILURES "), 0) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
