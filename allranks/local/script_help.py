"""What a script says that cannot run on this machine or in this Python, and what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from allranks.local.artifact_paths import artifact_path_help
from allranks.local.keras_2 import keras_2_help

_ASKS_FOR_GPU = re.compile(
    r"has no attribute '_cuda_setDevice'|Torch not compiled with CUDA enabled|Found no NVIDIA driver on your system"
    r"|No CUDA GPUs are available|ProcessGroupNCCL is only supported with GPUs|package doesn't have NCCL built in"
    r"|no CUDA-capable device is detected|MisconfigurationException: No supported gpu backend found"
)
_WAITED = re.compile(r"Timed out waiting \d+ ?ms for|Watchdog caught collective operation timeout")  # gloo's, NCCL's
_LACKS_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[^'.]+)[^']*'")


def failure_help(
    lines: Sequence[str], step: str, variables: Mapping[str, str], python: Path, code: Path | None = None
) -> str:
    """The help for a step with these last lines of its log; empty if they say nothing that is known.

    Args:
        lines: the end of the log of the rank that failed first.
        step: its name, or that of a sweep's trial.
        variables: those that it has from its YAML and its environment.
        python: the interpreter that it ran in.
        code: the folder of the user's that its code was taken from, where there is one.
    """
    known = keras_2_help(lines, step, variables) or script_help(lines, python, code) or artifact_path_help(lines)
    return known or waiting_help(lines)


def waiting_help(lines: Sequence[str]) -> str:
    """The help for a rank that has waited in vain: it has failed first and is not the one to look at."""
    if not any(map(_WAITED.search, lines)):
        return ""
    return (
        "it has waited for another rank until the time for that was up: the fault is with one that stands still, or is"
        " much slower, and the logs of all ranks tell where each was"
    )


def script_help(lines: Sequence[str], python: Path, code: Path | None = None) -> str:
    """The help for a GPU or a module that is not here."""
    if any(map(_ASKS_FOR_GPU.search, lines)):
        return (
            "the script asks for a GPU that is not here: where torch.cuda.is_available() is false, let it take the"
            ' device "cpu" and the backend "gloo"'
        )
    lacking = [found["name"] for found in map(_LACKS_MODULE.search, lines) if found]
    if not lacking:
        return ""
    above = code and next((folder for folder in code.parents[:2] if _holds_module(folder, lacking[-1])), None)
    if above:
        return (
            f"{lacking[-1]} lies in {above}, above the step's code: `--code {above}` takes that along, in a component"
            " its `code:`"
        )
    if code and _holds_module(code, lacking[-1]):
        return (
            f"{lacking[-1]} lies at the top of the step's code, and Python looks in the script's own folder: start the"
            " script by `python -m FOLDER.SCRIPT`, or set `environment_variables: {PYTHONPATH: .}`"
        )
    if lacking[-1] == "horovod":
        return "the step's Python has no horovod, which has to be compiled: `allranks env build horovod` does it"
    return (
        f"the step's Python has no {lacking[-1]}: name it in the step's environment; for a script install it in"
        f" {python}, or take another Python with --python '*=PATH'"
    )


def _holds_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py"))
