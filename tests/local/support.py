"""What the tests of the local engine share: pipelines as text, the command line, processes by marker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests import forks

ROOT = Path(__file__).parents[2]


def command(*arguments: str | Path) -> list[str]:
    """The command line of ``allranks`` with this interpreter."""
    return [sys.executable, "-m", "allranks", *map(str, arguments)]


def environ(**extra: str) -> dict[str, str]:
    """The caller's variables, with the checkout importable."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


def start_allranks(*arguments: str | Path, cwd: Path, **extra: str) -> forks.ForkedCommand:
    """Start a command line in a process that has imported what it needs already."""
    return forks.start_allranks(list(map(str, arguments)), environ(**extra), cwd)


def allranks(*arguments: str | Path, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    variables, called = environ(**extra), command(*arguments)
    if forks.needs_start(variables):
        return subprocess.run(called, cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    process = start_allranks(*arguments, cwd=cwd, **extra)
    try:
        output, errors = process.communicate()
    except BaseException:
        process.kill()
        raise
    return subprocess.CompletedProcess(called, process.wait(), output, errors)


def late(folder: Path) -> dict[str, str]:
    """Variables of processes whose clock jumps ahead by a day with each file that is made in a new folder."""
    folder.mkdir(parents=True)
    return {"JUMPS": str(folder), "PYTHONPATH": f"{ROOT / 'tests/local/late'}:{ROOT}"}


def run_json(*arguments: str | Path, cwd: Path, **extra: str) -> dict[str, Any]:
    """`allranks run … --json`, its one document, with the exit code under ``exit``."""
    done = allranks("run", *arguments, "--json", cwd=cwd, **extra)
    assert "Traceback" not in done.stderr, done.stderr
    return {**json.loads(done.stdout), "exit": done.returncode}


def pipeline(folder: Path, text: str, name: str = "pipeline.yaml") -> Path:
    """Write a pipeline's YAML; the text is indented as the test is."""
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def step(command: str, *, inputs: str = "", outputs: str = "", more: str = "") -> str:
    """One command step in YAML flow style, to be placed under ``jobs:``; ``more`` is any further keys."""
    parts = [
        "type: command",
        f"command: {json.dumps(command)}",
        "environment: azureml:whatever:1",
        f"inputs: {{{inputs}}}",
        f"outputs: {{{outputs}}}",
    ]
    return "{" + ", ".join(parts + ([more] if more else [])) + "}"


def carrying(marker: str) -> list[int]:
    """The processes that have ``marker`` in their environment or command line, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes() + b"\0" + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(int(entry.name))
    return found
