"""Run a component's script as Azure ML's PyTorch jobs do: one process for each rank, over several emulated nodes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.helpers import ROOT, azure_variables, clean_environment, free_port


@dataclass(frozen=True)
class Finished:
    """Exit codes by rank, and what all ranks printed, in rank order."""

    codes: tuple[int, ...]
    output: str

    @property
    def ok(self) -> bool:
        """Whether every rank succeeded."""
        return not any(self.codes)


def run_component(
    name: str, *arguments: object, folder: Path, nodes: int = 1, processes: int = 1, seconds: float = 90
) -> Finished:
    """Run every rank of a component with the folder as its working folder, and wait."""
    command = [sys.executable, str(ROOT / "components" / name / f"{name}.py"), *map(str, arguments)]
    port = free_port()
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(nodes * processes):
            variables = azure_variables(rank, nodes, processes, port) | {"MLFLOW_TRACKING_URI": None}
            environ, pipe = clean_environment(variables), subprocess.PIPE
            process = subprocess.Popen(
                command, cwd=folder, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True
            )
            started.append(process)
        output = "".join(process.communicate(timeout=seconds)[0] for process in started)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return Finished(tuple(process.returncode for process in started), output)
