"""What steps and ranks have used, as the terminal and the page say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allranks.local.resources.summary import highest_ranks
from allranks.wording import short_number, size_words


def resource_words(used: Mapping[str, Any]) -> list[str]:
    """``peak memory 1.2 GB``, ``1.9 cores``, ``read 3.0 GB``, ``written 1.0 MB``, of a step, a rank or a launcher."""
    peak = used["memory_peak_bytes"]
    return [
        "" if peak is None else f"peak memory {size_words(peak)}",
        f"{short_number(used['cores_mean'])} cores",
        f"read {size_words(used['read_bytes'])}",
        f"written {size_words(used['written_bytes'])}",
    ]


_COMPARED = {"memory_peak_gb": "peak memory", "read_gb": "read", "written_gb": "written"}
"""What ``runs compare --json`` has in GB, and what people read."""


def resource_row_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of resources that runs are compared by, in words: ``memory_peak_gb`` 0.0123 is ``peak memory`` 12.3 MB."""
    name = _COMPARED.get(row["name"])
    values = row["values"]
    shown = [value if value is None else size_words(1e9 * value) if name else short_number(value) for value in values]
    return {**row, "name": name or row["name"], "values": shown}


def resource_lines(resources: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Whose, and what: the step as a whole, where it had several ranks those with the highest peaks, and the GPUs."""
    if "note" in resources:
        yield "", [resources["note"], "", "", ""]
    if "cores_mean" not in resources:
        return
    yield "", resource_words(resources)
    ranks = resources["ranks"]
    shown = highest_ranks(resources) if len(ranks) > 1 else []
    for rank in shown:
        yield f"rank {rank}", resource_words(ranks[rank])
    if len(ranks) > len(shown) > 0:
        yield f"{len(ranks) - len(shown)} more ranks", ["no higher peak", "", "", ""]
    if "launcher" in resources and ranks:
        yield "launcher", resource_words(resources["launcher"])
    for gpu, used in resources.get("gpus", {}).items():
        memory, use = size_words(used["memory_peak_bytes"]), short_number(100 * used["use_mean"])
        yield f"GPU {gpu}", [f"peak memory {memory}", f"{use} % in use", "", ""]
