"""A chain with the local runner of Kubeflow Pipelines: each step a function in a process of the same environment.

It starts no virtual environment and installs nothing for a step, which its defaults do: that would take seconds more.
"""

import json
import sys
from pathlib import Path

from kfp import dsl, local


@dsl.component(install_kfp_package=False)
def do_nothing() -> str:
    """A null step."""
    return "done"


@dsl.component(install_kfp_package=False)
def run_command(command: list, folder: str) -> str:
    """Run a command in a folder."""
    import subprocess

    subprocess.run(command, cwd=folder, check=True)
    return "done"


steps = json.loads(Path(sys.argv[1]).read_text())


@dsl.pipeline
def chain() -> None:
    """All steps, each after the one before."""
    before = None
    for step in steps:
        task = run_command(command=step["command"], folder=step["folder"]) if step["command"] else do_nothing()
        if before is not None:
            task.after(before)
        before = task


local.init(local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
chain()
