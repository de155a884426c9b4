"""The check of where steps run: VM sizes against ranks and nodes, and cheap machines against checkpoints.

It stands apart from ``check_document``, because a local run does not care: there the same mistakes are only notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from allranks.errors import Problem
from allranks.sizes import MachineUse, find_misfits
from allranks.sizes.fit import PROCESSES_KEY
from allranks.spec.distribution import distribution_kind
from allranks.spec.model import Component, Data, Literal, Pipeline, Source, Step
from allranks.spec.needs import Distribution, Resources
from allranks.spec.values import Values, default_values, given_values, resolved_value

LOW_PRIORITY = "Azure ML retired low-priority nodes on 2026-03-31: a cluster gets none any more."
LOW_PRIORITY_HINT = "Take tier: dedicated, or serverless compute with queue_settings: {job_tier: spot}."
_PROCESSES_INPUT = "processes_per_node"  # where a component that starts its own processes is told their number


@dataclass(frozen=True, slots=True)
class Compute:
    """What is known of a compute cluster.

    Attributes:
        size: of its machines.
        max_nodes: to how many nodes it grows; None where that is not known.
    """

    size: str
    max_nodes: int | None = None


def is_low_priority(tier: object) -> bool:
    """Whether a cluster's tier means low priority, in any spelling: ``low_priority``, ``LowPriority``."""
    return str(tier).lower().replace("_", "").replace("-", "") == "lowpriority"


def check_machines(document: Component | Pipeline, computes: Mapping[str, Compute] | None = None) -> list[Problem]:
    """Find what is wrong with the machines of a component or of all steps of a pipeline.

    Args:
        document: what has been read.
        computes: the clusters that are known, by name; the steps of others are checked by their ``instance_type``.

    Returns:
        Errors for what cannot work (more ranks than GPUs), warnings for what wastes money; empty when all is well.
    """
    known = default_values(document)
    if isinstance(document, Component):
        return list(StepMachines(document.source, Step("", document), document, known, "").problems())
    found = (machines.problems() for _, machines in machines_of_steps(document, known, computes or {}))
    return list(dict.fromkeys(chain.from_iterable(found)))


def machines_of_steps(
    pipeline: Pipeline, known: Values, computes: Mapping[str, Compute], inherited: str = "", prefix: str = ""
) -> Iterator[tuple[str, StepMachines]]:
    """Yield every command and sweep step with its dotted name; nested ones inherit the compute of their parent."""
    default = _compute_name(pipeline.settings.default_compute, known) or inherited
    for step in pipeline.steps.values():
        name = _compute_name(step.compute, known) or default
        if isinstance(step.component, Pipeline):
            inner = {**default_values(step.component), **given_values(step, known)}
            yield from machines_of_steps(step.component, inner, computes, name, f"{prefix}{step.name}.")
        else:
            place = f"jobs.{step.name}."
            machines = StepMachines(pipeline.source, step, step.component, known, place, name, computes.get(name))
            yield prefix + step.name, machines


def _compute_name(written: str | None, known: Values) -> str:
    name = resolved_value(written, known)
    return name.removeprefix("azureml:") if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class StepMachines:
    """The machines of one step.

    A component without a name is not known here: what depends on its command and outputs is left out.

    Attributes:
        known: the values of the inputs of the step's pipeline.
        prefix: the step's place in the document, empty for a component by itself.
        compute_name: where it runs, its own or inherited; empty where nobody says.
        compute: what is known of that cluster.
    """

    source: Source
    step: Step
    component: Component
    known: Values
    prefix: str
    compute_name: str = ""
    compute: Compute | None = None

    def problems(self) -> Iterator[Problem]:
        """Yield what does not fit: ranks and GPUs, nodes and network, nodes and cluster, eviction."""
        use = self.use()
        for where, message, hint, severity in () if use is None else find_misfits(use):
            place = f"inputs.{_PROCESSES_INPUT}" if where == PROCESSES_KEY and self._starts_its_own else where
            yield self.source.problem(self.prefix + place, message, hint, severity)
        yield from self._too_many_nodes()
        yield from self._spot()

    @property
    def _starts_its_own(self) -> bool:
        return _PROCESSES_INPUT in self.component.inputs

    @property
    def size(self) -> str | None:
        """The VM size: the cluster's where it is known, else the step's ``instance_type``."""
        size = self.compute.size if self.compute else resolved_value(own_resources(self.step).instance_type, self.known)
        return size if isinstance(size, str) else None

    @property
    def distribution(self) -> Distribution:
        """The step's, else its component's; without a type for a step that has none."""
        return self.step.distribution or self.component.distribution or Distribution("")

    @property
    def nodes(self) -> int | None:
        """The number of machines; None where it is known only when it runs."""
        nodes = own_resources(self.step).nodes
        nodes = self.component.resources.nodes if nodes is None else nodes
        return _count(resolved_value(1 if nodes is None else nodes, self.known))

    @property
    def processes(self) -> int | None:
        """Ranks on each node; None where that is not known."""
        if not self.component.name:
            return None
        if self._starts_its_own:
            declared = self.component.inputs[_PROCESSES_INPUT]
            return _count(resolved_value(self.step.inputs.get(_PROCESSES_INPUT, declared.default), self.known))
        processes = self.distribution.processes_per_node
        return _count(resolved_value(1 if processes is None else processes, self.known))

    def use(self) -> MachineUse | None:
        """What the step asks of its machines; None where their size is not known."""
        if self.size is None:
            return None
        component, kind = self.component, distribution_kind(self.distribution)
        variables = {**component.environment_variables, **self.step.environment_variables}
        image = component.environment.reference or ""
        gpu_per_rank = kind.starts_processes
        return MachineUse(self.size, self.nodes, self.processes, gpu_per_rank, component.command, variables, image)

    def _too_many_nodes(self) -> Iterator[Problem]:
        most = None if self.compute is None else self.compute.max_nodes
        if most is not None and self.nodes is not None and self.nodes > most:
            message = f"{self.nodes} nodes, and the cluster {self.compute_name} grows to {most}: it would never start."
            hint = (
                f"Take fewer nodes, or: az ml compute update --name {self.compute_name} --max-instances {self.nodes}."
            )
            yield self.source.problem(f"{self.prefix}resources.instance_count", message, hint)

    def _spot(self) -> Iterator[Problem]:
        """Warn where an eviction would lose everything: nothing that the step writes is mounted."""
        tier = self.step.tier or self.component.tier
        if tier != "spot" or not self.prefix or not self.component.name:
            return
        settings = self.step.outputs
        modes = [getattr(settings.get(name), "mode", None) or one.mode for name, one in self.component.outputs.items()]
        if "rw_mount" not in modes:
            message = "these machines can be taken away at any time, and no output of the step is mounted: it would "
            hint = "Write mode: rw_mount at the output that holds the checkpoints."
            yield self.source.problem(
                f"{self.prefix}queue_settings.job_tier", message + "start again from nothing.", hint, "warning"
            )


def own_resources(step: Step) -> Resources:
    """Return the step's resources: its own, which replace all of the component's, or else these."""
    component = step.component
    return component.resources if isinstance(component, Component) and step.resources == Resources() else step.resources


def _count(value: Literal | Data | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
