"""Run a component's script as Azure ML's PyTorch jobs do: one process for each rank, over several emulated nodes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.forks import ForkedProcess, framework_of
from tests.helpers import ROOT, azure_variables, clean_environment, free_port, start_rank


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
    script = ROOT / "components" / name / f"{name}.py"
    command = [sys.executable, str(script), *map(str, arguments)]
    port = free_port()
    started: list[subprocess.Popen[bytes] | ForkedProcess] = []
    with ExitStack() as files:
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in range(nodes * processes)]
        try:
            for rank, output in enumerate(outputs):
                variables = azure_variables(rank, nodes, processes, port) | {"MLFLOW_TRACKING_URI": None}
                environ = clean_environment(variables)
                started.append(start_rank(command, environ, folder, output, output, framework_of(str(script))))
            until = time.monotonic() + seconds
            codes = [process.wait(max(0.01, until - time.monotonic())) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
        for output in outputs:
            output.seek(0)
        return Finished(tuple(codes), "".join(output.read().decode(errors="replace") for output in outputs))
