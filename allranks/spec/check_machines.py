"""The check of where steps run: VM sizes against ranks and nodes, and cheap machines against checkpoints.

It stands apart from ``check``, because a local run does not care: there the same mistakes are only notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allranks.errors import Problem
from allranks.sizes import Use, misfits
from allranks.sizes.fit import PROCESSES
from allranks.spec.expressions import single
from allranks.spec.model import Component, Data, Distribution, Literal, Pipeline, Resources, Source, Step

PROCESSES_INPUT = "processes_per_node"  # a component that starts its own processes on each node takes their number here

Values = Mapping[str, Literal | Data]


@dataclass(frozen=True, slots=True)
class Compute:
    """What is known of a compute cluster: the size of its machines, and whether they can be taken away."""

    size: str
    low_priority: bool = False


def check_machines(
    document: Component | Pipeline, values: Values | None = None, computes: Mapping[str, Compute] | None = None
) -> list[Problem]:
    """Find what is wrong with the machines of a component or of all steps of a pipeline.

    Args:
        document: what has been read.
        values: values of its inputs; defaults stand for the others.
        computes: the clusters that are known, by name; the steps of others are checked by their ``instance_type``.

    Returns:
        Errors for what cannot work (more ranks than GPUs), warnings for what wastes money; empty when all is well.
    """
    defaults = {name: one.default for name, one in document.inputs.items() if one.default is not None}
    known = {**defaults, **(values or {})}
    if isinstance(document, Component):
        return list(_Machines(document.source, Step("", document), document, known, "").problems())
    return list(dict.fromkeys(_of_pipeline(document, known, computes or {})))


def _of_pipeline(pipeline: Pipeline, known: Values, computes: Mapping[str, Compute]) -> Iterator[Problem]:
    for step in pipeline.steps.values():
        if isinstance(step.component, Pipeline):
            yield from check_machines(step.component, _given_to(step, known), computes)
            continue
        name = (step.compute or pipeline.settings.default_compute or "").removeprefix("azureml:")
        place, compute = f"jobs.{step.name}.", computes.get(name)
        yield from _Machines(pipeline.source, step, step.component, known, place, compute).problems()


def _given_to(step: Step, known: Values) -> dict[str, Literal | Data]:
    found = {name: _resolved(value, known) for name, value in step.inputs.items()}
    return {name: value for name, value in found.items() if value is not None}


def _resolved(value: Literal | Data | None, known: Values) -> Literal | Data | None:
    """The value that a binding to the pipeline's input has, None where it is known only when it runs."""
    reference = single(value if isinstance(value, str) else None)
    if reference is None:
        return value
    return known.get(reference.name) if reference.scope == "parent.inputs" else None


@dataclass(frozen=True, slots=True)
class _Machines:
    """The machines of one step; ``prefix`` is its place in the document, empty for a component by itself.

    A component without a name is not known here: what depends on its command and outputs is left out.
    """

    source: Source
    step: Step
    component: Component
    known: Values
    prefix: str
    compute: Compute | None = None

    def problems(self) -> Iterator[Problem]:
        use = self._use()
        if use is not None:
            for where, message, hint, severity in misfits(use):
                place = f"inputs.{PROCESSES_INPUT}" if where == PROCESSES and self._starts_its_own else where
                yield self.source.problem(self.prefix + place, message, hint, severity)
        yield from self._spot()

    @property
    def _starts_its_own(self) -> bool:
        return PROCESSES_INPUT in self.component.inputs

    def _use(self) -> Use | None:
        component = self.component
        resources = component.resources if self.step.resources == Resources() else self.step.resources
        size = _resolved(resources.instance_type, self.known) if self.compute is None else self.compute.size
        if not isinstance(size, str):
            return None
        distribution = self.step.distribution or component.distribution or Distribution("")
        nodes = component.resources.nodes if resources.nodes is None else resources.nodes
        return Use(
            size,
            _count(_resolved(1 if nodes is None else nodes, self.known)),
            _count(self._processes(distribution)) if component.name else None,
            distribution.type,
            component.command,
            {**component.environment_variables, **self.step.environment_variables},
            component.environment.reference or "",
        )

    def _processes(self, distribution: Distribution) -> Literal | Data | None:
        if self._starts_its_own:
            declared = self.component.inputs[PROCESSES_INPUT]
            return _resolved(self.step.inputs.get(PROCESSES_INPUT, declared.default), self.known)
        processes = distribution.processes_per_node
        return _resolved(1 if processes is None else processes, self.known)

    def _spot(self) -> Iterator[Problem]:
        """Warn where an eviction would lose everything: nothing that the step writes is mounted."""
        tier = self.step.tier or self.component.tier
        low_priority = self.compute is not None and self.compute.low_priority
        if (tier != "spot" and not low_priority) or not self.prefix or not self.component.name:
            return
        settings = self.step.outputs
        modes = [getattr(settings.get(name), "mode", None) or one.mode for name, one in self.component.outputs.items()]
        if "rw_mount" not in modes:
            where = "queue_settings.job_tier" if tier == "spot" else "compute"
            message = "these machines can be taken away at any time, and no output of the step is mounted: it would "
            hint = "Write mode: rw_mount at the output that holds the checkpoints."
            yield self.source.problem(self.prefix + where, message + "start again from nothing.", hint, "warning")


def _count(value: Literal | Data | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
