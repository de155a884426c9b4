"""Checks of the numbers that say how large a step is, whether they stand in its component or on the step."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.expressions import find_references
from allranks.spec.model import Source
from allranks.spec.needs import Distribution, Resources


def check_counts(
    source: Source, distribution: Distribution | None, resources: Resources, timeout: float | str | None
) -> Iterator[Problem]:
    """Check the numbers that say how many nodes and ranks there are, and the size of the shared memory."""
    yield from _positive(source, "limits.timeout", timeout, "seconds")
    yield from _positive(source, "resources.instance_count", resources.nodes, "nodes")
    if distribution is not None:
        processes = distribution.processes_per_node
        yield from _positive(source, "distribution.process_count_per_instance", processes, "processes on each node")
        yield from _positive(source, "distribution.worker_count", distribution.worker_count, "workers")
        servers = distribution.parameter_server_count
        if isinstance(servers, int) and servers < 0:
            yield source.problem("distribution.parameter_server_count", f"{servers} is below the minimum of 0.")
    yield from check_shm_size(source, "resources.shm_size", resources.shm_size)


def _positive(source: Source, where: str, value: float | str | None, what: str) -> Iterator[Problem]:
    if isinstance(value, (int, float)) and value <= 0:
        yield source.problem(where, f"{value} is below the minimum of 1: the number of {what}.")


def check_shm_size(source: Source, where: str, size: str | None) -> Iterator[Problem]:
    """Check the shape of ``shm_size`` unless it is a binding."""
    if size and not find_references(size) and not schema.SHM_SIZE.fullmatch(size):
        message = f"'{size}' is no size: a whole number above 0 and one of b, k, m, g."
        yield source.problem(where, message, "Write 2g, for example.")


def check_workers(source: Source, distribution: Distribution | None, nodes: float | str | None) -> Iterator[Problem]:
    """Check that workers, where there are any, are as many as the nodes, which Azure ML demands and does not check."""
    workers, count = None if distribution is None else distribution.worker_count, 1 if nodes is None else nodes
    if isinstance(workers, int) and isinstance(count, int) and workers != count:
        starts = "Azure ML starts one worker a node."
        message = f"worker_count is {workers}, and resources.instance_count is {count}; {starts}"
        yield source.problem("distribution.worker_count", message, f"Set both to {max(workers, count)}.")
