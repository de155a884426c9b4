"""The VM size that each step of a submission gets, and what is wrong where nobody names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allranks.errors import Problem
from allranks.sizes import all_sizes
from allranks.spec.check_machines import Compute, StepMachines, machines_of_steps
from allranks.spec.distribution import distribution_kind
from allranks.spec.model import Pipeline
from allranks.spec.values import default_values

SERVERLESS = "serverless"


@dataclass(frozen=True, slots=True)
class StepSize:
    """Where one step runs, by its name, dotted for one of a nested pipeline.

    The compute is the cluster, ``serverless``, or empty where nobody says. The size is None where Azure chooses it, or
    the cluster has not been asked; the nodes, and the ranks on each, where they are known only when it runs. The
    launcher of a distributed one starts a process for each GPU.
    """

    step: str
    compute: str
    size: str | None
    nodes: int | None
    processes: int | None
    is_distributed: bool

    @property
    def is_serverless(self) -> bool:
        """Whether the step itself has to name a size."""
        return self.compute in ("", SERVERLESS)

    @property
    def ranks(self) -> str:
        """Nodes and ranks on each, such as ``2x8``."""
        return f"{self.nodes or '?'}x{self.processes or '?'}"

    @property
    def place(self) -> str:
        """The size, and whose it is, for people."""
        if self.is_serverless:
            return self.size or "a size that Azure chooses"
        return f"{self.size} (compute {self.compute})" if self.size else f"the size of compute {self.compute}"


def step_sizes(pipeline: Pipeline, computes: Mapping[str, Compute] | None = None) -> list[StepSize]:
    """Find where every command and sweep step runs; ``computes`` are the workspace's, None where it was not asked."""
    found = machines_of_steps(pipeline, default_values(pipeline), computes or {})
    return [_size_of(name, machines) for name, machines in found]


def _size_of(name: str, machines: StepMachines) -> StepSize:
    distributed = distribution_kind(machines.distribution).starts_processes
    # Of a cluster that has not been asked nothing is known: what the step's instance_type says does not count there.
    known = machines.compute is not None or machines.compute_name in ("", SERVERLESS)
    size = machines.size if known else None
    return StepSize(name, machines.compute_name, size, machines.nodes, machines.processes, distributed)


def described_sizes(found: Sequence[StepSize]) -> list[str]:
    """Return one line for each size, with the steps that get it: ``on Standard_… (compute gpu): train 2x8``."""
    by_place: dict[str, list[str]] = {}
    for one in found:
        by_place.setdefault(one.place, []).append(f"{one.step} {one.ranks}")
    return [f"on {place}: {', '.join(steps)}" for place, steps in by_place.items()]


def check_sizes(pipeline: Pipeline, found: Sequence[StepSize]) -> list[Problem]:
    """Find ranks that no size can give, and warn of several ranks on a size that nobody names."""
    problems = []
    most = max((size.gpus for size in all_sizes().values() if not size.retired), default=0)
    for one in found:
        if one.size is None and one.is_distributed and (one.processes or 0) > most:
            message = f"{one.processes} processes on each node, and no size has more than {most} GPUs."
            severity = "error" if one.is_serverless else "warning"  # a cluster of CPUs may have as many cores
            hint = f"Take more nodes: --scale {one.step}=Nx{most}."
            problems.append(pipeline.source.problem(f"jobs.{one.step}", message, hint, severity))
    open_ = [one for one in found if one.is_serverless and one.size is None and (one.nodes, one.processes) != (1, 1)]
    if open_:
        steps = ", ".join(f"{one.step} ({one.ranks})" for one in open_)
        said = "several ranks, and nobody names a size: Azure chooses one, as far as is known without GPUs"
        largest = max(open_, key=lambda one: (one.nodes or 1) * (one.processes or 1))
        hint = f"Give --instance-type {largest.step}=SIZE (see docs/sizes.md), or --compute NAME."
        problems.append(pipeline.source.problem("", f"{said}: {steps}.", hint, "warning"))
    return problems
