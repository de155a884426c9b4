"""Kill a rank at an exact step: the rank does it itself."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

ARMED = """\
import importlib.util
import sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "shared.distributed.liveness":
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            from dying import die_at
            die_at({step}, {rank}, once={once!r})

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""
"""`sitecustomize` of every Python that a run starts."""


def die_at(step: int, rank: int, *, once: str | Path = "") -> None:
    """Let this process send itself SIGKILL at the end of a step, if it is that worker.

    Args:
        step: the number of steps, and of first validations, that the process has made since it started.
        rank: of the worker.
        once: a file that is written before; where it is there, nothing happens.
    """
    liveness: Any = importlib.import_module("shared.distributed.liveness")

    class Dying(liveness._Progress):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "steps" and value == step and _is_worker(rank) and not (once and Path(once).exists()):
                if once:
                    Path(once).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    liveness._progress = Dying()


def arm(folder: Path, step: int, rank: int) -> dict[str, str]:
    """Let a worker of a run die once; return variables for the engine, whose ranks do not inherit PYTHONPATH."""
    folder.mkdir()
    shutil.copy(__file__, folder / "dying.py")
    (folder / "sitecustomize.py").write_text(ARMED.format(step=step, rank=rank, once=str(folder / "died")))
    (folder / "bash_env").write_text(f"export PYTHONPATH={shlex.quote(str(folder))}\n")
    return {"BASH_ENV": str(folder / "bash_env")}


def _is_worker(rank: int) -> bool:
    from shared.distributed.launch import detect

    launch = detect()
    return (launch.role, launch.rank) == ("worker", rank)
