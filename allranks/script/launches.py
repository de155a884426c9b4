"""How Azure ML has to start a script's ranks, recognised from what it imports and calls.

The kinds of distribution: https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu. PyTorch's
serves whatever reads RANK and WORLD_SIZE; MPI's serves Horovod and mpi4py; TensorFlow's sets TF_CONFIG.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from allranks.script.sources import ScriptSource, dotted_name, imported_names

NO_DISTRIBUTION = "none"
DISTRIBUTION_CHOICES = ("pytorch", "mpi", "tensorflow", NO_DISTRIBUTION)

_MPI_IMPORTS = ("horovod", "mpi4py")
_TORCH_IMPORTS = (
    *("accelerate", "lightning", "pytorch_lightning", "deepspeed", "composer", "colossalai", "torch.distributed"),
    *("torch.nn.parallel.DistributedDataParallel", "transformers.Trainer", "transformers.TrainingArguments"),
    *("transformers.Seq2SeqTrainer", "transformers.Seq2SeqTrainingArguments", "ignite.distributed", "trl"),
)
_TORCH_CALLS = frozenset(
    ["init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "init_device_mesh"]
)
_TENSORFLOW_NAMES = frozenset(
    ["MultiWorkerMirroredStrategy", "ParameterServerStrategy", "ParameterServerStrategyV2", "TFConfigClusterResolver"]
)
_ONE_PROCESS_NAMES = frozenset(["MirroredStrategy", "OneDeviceStrategy", "DataParallel"])
_TORCH_VARIABLES = frozenset(["RANK", "WORLD_SIZE", "LOCAL_RANK"])
_STARTERS = ("torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec")
_OWN_LAUNCHER = re.compile(r"\btorch\.distributed\.(run|launch)\b")


@dataclass(frozen=True, slots=True)
class RecognisedLaunch:
    """A kind of distribution, empty for none, and why, such as ``init_process_group, train.py:12``.

    ``own_launcher`` is the program with which a command starts its processes itself, once on each node.
    """

    distribution: str
    reason: str
    own_launcher: str = ""

    @property
    def words(self) -> str:
        """For people: ``distribution pytorch: init_process_group, train.py:12``."""
        return f"distribution {self.distribution or NO_DISTRIBUTION}: {self.reason}"


def recognise_launch(sources: Iterable[ScriptSource]) -> RecognisedLaunch:
    """Recognise the distribution of a script, the first of its sources, with the modules beside it."""
    signs = [sign for source in sources for sign in _signs(source)]
    for kind in ("mpi", "tensorflow", "own", "pytorch", "one", "variables"):
        for found, reason in signs:
            if found != kind:
                continue
            if kind == "own":
                return RecognisedLaunch("", f"{reason}, starts its processes itself, on one node")
            if kind == "one":
                return RecognisedLaunch("", f"{reason}, is for the devices of one process")
            return RecognisedLaunch("pytorch" if kind == "variables" else kind, reason)
    return RecognisedLaunch("", "nothing in it divides work among processes")


def recognise_command(command: str, sources: Iterable[ScriptSource]) -> RecognisedLaunch:
    """Recognise the distribution of a shell command, whose scripts are given as far as they were found."""
    starter = own_launcher(command)
    if starter in ("horovodrun", "mpirun", "mpiexec"):
        return RecognisedLaunch("", f"{starter} starts the processes, on one node", starter)
    if starter:
        return RecognisedLaunch("pytorch", f"{starter} is started once on each node", starter)
    return recognise_launch(sources)


def lone_trainers(sources: Iterable[ScriptSource], nodes: int, processes: int, given: Sequence[str] = ()) -> list[str]:
    """What is to be said of Lightning's Trainers that would not find the other ranks of such a launch.

    ``given`` are the script's arguments, among which LightningCLI has those of its Trainer.
    """
    found = []
    wanted = {"num_nodes": nodes, "devices": processes}
    for source in sources:
        if not any(
            name.partition(".")[0] in ("lightning", "pytorch_lightning") for name, _ in imported_names(source.tree)
        ):
            continue
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            kind = dotted_name(call.func).rpartition(".")[2]
            keywords = {keyword.arg for keyword in call.keywords}  # None for **
            needed = {name: count for name, count in wanted.items() if count > 1}
            lacking = [f"{name}={count}" for name, count in needed.items() if name not in keywords]
            if kind == "LightningCLI":
                text = " ".join([*given, ast.unparse(call)])
                flags = [f"--trainer.{name} {count}" for name, count in needed.items() if name not in text]
                lacking, without = flags, " ".join(flags)
            else:
                without = f"{kind}({', '.join(lacking)})"
            if kind in ("Trainer", "Fabric", "LightningCLI") and lacking and None not in keywords:
                found.append(
                    f"{source.place(call)}: Lightning learns the number of ranks from its arguments, not from the"
                    f" launch: without {without} ranks train alone."
                )
    return found


def own_launcher(command: str) -> str:
    """The launcher that a command starts, such as ``torchrun``; empty if it starts none."""
    if _OWN_LAUNCHER.search(command):
        return "torch.distributed.run"
    words = set(re.split(r"[\s;&|()]+", command))
    return next((one for one in _STARTERS if one in words), "")


def command_words(command: str) -> list[str]:
    """The words of a command as a shell would have them; none if its quotes are not closed."""
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return []


def _signs(source: ScriptSource) -> Iterator[tuple[str, str]]:
    """Each thing in a file that tells how it is started: its kind and where it is."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            last = name.rpartition(".")[2]
            if last in ("spawn", "start_processes") and ("multiprocessing" in name or name == f"mp.{last}"):
                yield "own", f"{name}, {source.place(node)}"
            elif last in _TORCH_CALLS:
                yield "pytorch", f"{last}, {source.place(node)}"
            elif last in _ONE_PROCESS_NAMES:
                yield "one", f"{last}, {source.place(node)}"
        if isinstance(node, ast.Attribute | ast.Name):
            last = node.attr if isinstance(node, ast.Attribute) else node.id
            if last in _TENSORFLOW_NAMES:
                yield "tensorflow", f"{last}, {source.place(node)}"
        if isinstance(node, ast.Constant) and node.value == "TF_CONFIG":
            yield "tensorflow", f"TF_CONFIG, {source.place(node)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _TORCH_VARIABLES:
            yield "variables", f"{node.value}, {source.place(node)}"
    for name, statement in imported_names(source.tree):
        package = name.partition(".")[0]
        if package in _MPI_IMPORTS:
            yield "mpi", f"import {package}, {source.place(statement)}"
        elif any(name == one or name.startswith(f"{one}.") for one in _TORCH_IMPORTS):
            yield "pytorch", f"import {name}, {source.place(statement)}"
