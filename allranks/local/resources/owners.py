"""Whose a process is, by the variables that it was started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """A rank, or with the rank None what starts the ranks of a node: mpirun, torchrun, a parallel step's coordinator.

    Attributes:
        by_torchrun: whether torchrun has started it: then what has the node's own variables is no rank but torchrun.
    """

    node: int
    rank: int | None
    by_torchrun: bool = False


def owner_by_variables(variables: Mapping[str, str]) -> ProcessOwner | None:
    """What the variables say of a process of ours, or of one that a launcher has started; None for others."""
    if "AZUREML_RUN_ID" not in variables:
        return None
    node = _number(variables.get("AZUREML_CR_NODE_RANK", "")) or 0
    if "TORCHELASTIC_RUN_ID" in variables and (rank := _number(variables.get("RANK", ""))) is not None:
        return ProcessOwner(node, rank, by_torchrun=True)
    name = variables.get("AZUREML_PROCESS_NAME", "")
    if name == "main":
        return ProcessOwner(node, 0)
    return ProcessOwner(node, _number(variables.get("OMPI_COMM_WORLD_RANK", name.removeprefix("rank_"))))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
