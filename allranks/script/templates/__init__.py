"""Scripts to start from, one for each usual shape: plain code of the framework, that the user owns from the first line.

They are texts and no modules here: the tool imports no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from allranks.errors import UnknownNameError

_FOLDER = Path(__file__).parent
_TEMPLATES = {
    "plain": "one process: arguments, a loop, metrics, a model",
    "ddp": "PyTorch, DistributedDataParallel: Azure ML starts every rank",
    "torchrun": "the same script, one torchrun on each node",
    "fsdp": "PyTorch, FSDP: parameters, gradients and optimizer divided over all ranks",
    "lightning": "Lightning's Trainer, on any number of nodes",
    "horovod": "PyTorch under Horovod, started by mpirun",
    "tensorflow": "Keras under MultiWorkerMirroredStrategy",
}


@dataclass(frozen=True, slots=True)
class ScriptTemplate:
    """A script to start from: its file's name and text, and whether torchrun starts it."""

    file: str
    text: str
    uses_torchrun: bool = False


def template_lines() -> dict[str, str]:
    """Each template with a few words on it."""
    return dict(_TEMPLATES)


def find_template(name: str) -> ScriptTemplate:
    """The template of this name; raises UnknownNameError with the choices."""
    if name not in _TEMPLATES:
        close = get_close_matches(name, _TEMPLATES, n=1)
        guess = f" (did you mean {close[0]!r}?)" if close else ""
        raise UnknownNameError(f"there is no template {name!r}{guess}.", f"Templates: {', '.join(_TEMPLATES)}.")
    file = "ddp" if name == "torchrun" else name
    text = (_FOLDER / f"{file}.py.txt").read_text(encoding="utf-8")
    return ScriptTemplate("train.py", text, name == "torchrun")
