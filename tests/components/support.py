"""Run a component's script as Azure ML's PyTorch jobs do: one process for each rank, over several emulated nodes."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import ROOT, clean_environment, run_ranks, start_rank


@dataclass(frozen=True)
class Finished:
    """Exit codes by rank, and what all ranks printed, in rank order."""

    codes: tuple[int, ...]
    output: str

    @property
    def ok(self) -> bool:
        """Whether every rank succeeded."""
        return not any(self.codes)


def source_of(name: str, *arguments: object, before: str = "pass") -> str:
    """Python source that runs a component's script with these arguments, after the statement ``before``."""
    path = ROOT / "components" / name / f"{name}.py"
    return f"""
        import runpy, sys
        {before}
        sys.argv = {[str(path), *map(str, arguments)]!r}
        runpy.run_path({str(path)!r}, run_name="__main__")
    """


def run_component(
    name: str, *arguments: object, folder: Path, nodes: int = 1, processes: int = 1, before: str = "pass"
) -> Finished:
    """Run every rank of a component with the folder as its working folder, and wait."""
    code = source_of(name, *arguments, before=before)
    results = run_ranks(code, nodes, processes, {"MLFLOW_TRACKING_URI": None}, folder)
    codes = tuple(result.returncode for result in results)
    return Finished(codes, "".join(result.stdout + result.stderr for result in results))


def run_apart(code: str, *arguments: object, framework: str, folder: Path) -> str:
    """Run Python source without the library in its path, forked from a process with the framework; return its output."""
    script = folder / "apart.py"
    script.write_text(textwrap.dedent(code))
    command = [sys.executable, str(script), *map(str, arguments)]
    with (folder / "apart.out").open("wb") as out, (folder / "apart.err").open("wb") as err:
        process = start_rank(command, clean_environment({"PYTHONPATH": None}), folder, out, err, framework)
    assert process.wait() == 0, (folder / "apart.err").read_text()
    return (folder / "apart.out").read_text()
