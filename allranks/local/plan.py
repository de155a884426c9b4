"""What a run will do, step by step: every binding resolved, every count known, nothing started yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from allranks.errors import UnknownNameError, UsageError
from allranks.local.input_sources import InputSource
from allranks.local.node_host import THIS_MACHINE, NodeHost
from allranks.spec import Component, Output
from allranks.spec.expressions import quote_fault, render_command

if TYPE_CHECKING:  # a run that needs none of them does not import what makes them
    from allranks.local.containers.images import ContainerImage
    from allranks.local.environments.step_environment import StepEnvironment

AZURE_PORT = 6105  # what Azure ML uses; shown by a dry run, which asks for no port


@dataclass(frozen=True, slots=True)
class StepOutput:
    """An output of another step, as the value of an input."""

    step: str
    port: str

    def __str__(self) -> str:
        return f"<{self.step}.{self.port}>"


InputValue: TypeAlias = str | Path | StepOutput
"""An input's value: the text of a literal, a path on this machine, or another step's output."""
_Place = TypeVar("_Place")


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step, ready to run as soon as the steps in ``after`` have succeeded.

    Attributes:
        kind: its name; see ``kinds``.
        name: nested steps are ``outer.inner``.
        inputs: the inputs that have a value.
        sources: where each of them comes from.
        outputs: declared outputs with the step's settings applied.
        distribution: ``pytorch``, ``mpi``, ``tensorflow`` or None.
        processes: ranks on each node, those included that the command starts itself (torchrun).
        launched: processes that are started on each node by whoever runs the step.
        timeout: seconds for one attempt, or None.
        spare_nodes: so many nodes, though not the first, may be lost, because its torchrun goes on without them.
        chosen_by: the steps that decide whether it runs, each with the decision at which it does.
        python: the interpreter of the environment that the step names; None for the run's own.
        shm_size, docker_args: what it asks for its container.
        downloaded: the data inputs of which it gets copies.
        host: where its ranks run.
        variant: keeps its results apart from those of a step that is equal otherwise; empty for the usual ones.
    """

    kind: str
    name: str
    component: Component
    inputs: Mapping[str, InputValue]
    outputs: Mapping[str, Output]
    distribution: str | None
    nodes: int
    processes: int
    environment_variables: Mapping[str, str]
    timeout: float | None
    launched: int = 1
    parameter_servers: int = 0
    spare_nodes: int = 0
    python: Path | None = None
    chosen_by: tuple[tuple[str, bool], ...] = ()
    shm_size: str | None = None
    docker_args: tuple[str, ...] = ()
    downloaded: frozenset[str] = frozenset()
    host: NodeHost = THIS_MACHINE
    sources: Mapping[str, InputSource] = field(default_factory=dict)
    variant: str = ""

    @property
    def after(self) -> tuple[str, ...]:
        """The steps whose outputs it reads, each once, in the order of the inputs; then those that decide about it."""
        return tuple(dict.fromkeys([*(output.step for output in self.bound.values()), *dict(self.chosen_by)]))

    @property
    def kept_outputs(self) -> list[str]:
        """The outputs that a failed attempt leaves to the next one.

        Only what is mounted survives on Azure ML; elsewhere a half-written file could be taken for a whole one.
        """
        return [name for name, output in self.outputs.items() if output.mode == "rw_mount"]

    @property
    def ranks(self) -> int:
        """The number of processes of the whole step."""
        return self.nodes * self.processes

    @property
    def source_documents(self) -> dict[str, dict[str, Any]]:
        """Where each input comes from, as JSON."""
        return {name: source.document() for name, source in self.sources.items()}

    @property
    def literals(self) -> dict[str, str]:
        """The inputs that are literals, as text."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, str)}

    @property
    def paths(self) -> dict[str, Path]:
        """The inputs that are paths on this machine."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, Path)}

    @property
    def bound(self) -> dict[str, StepOutput]:
        """The inputs that are outputs of other steps."""
        return {name: value for name, value in self.inputs.items() if isinstance(value, StepOutput)}

    @property
    def attributes(self) -> dict[str, Any]:
        """What every planned step has, of whatever kind: a kind that adds to it, or its parts, are made from this."""
        return {one.name: getattr(self, one.name) for one in fields(PlannedStep)}

    def place_data(self, place: Callable[[StepOutput], _Place]) -> dict[str, Path | _Place]:
        """The data inputs in their order, with a place for each that is another step's output."""
        data = {name: value for name, value in self.inputs.items() if not isinstance(value, str)}
        return {name: place(value) if isinstance(value, StepOutput) else value for name, value in data.items()}

    def command(self, data: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """The command with everything filled in: a path for each output, and for each data input that has a value."""
        values: dict[str, str | None] = dict.fromkeys(self.component.inputs)
        values |= {**self.literals, **data}
        if fault := quote_fault(self.component.command, values, outputs):
            raise UsageError(fault, "Choose a value without single quotes.")
        return render_command(self.component.command, values, outputs)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A whole run, whose steps each come after those that it needs. Its name is the pipeline's.

    The outputs are the step outputs that the pipeline's are; notes say what the user should know and need not mend;
    environments and images have to be there before the first step starts, in the order in which they are needed. The
    experiment is the one that its runs belong to, by name.
    """

    name: str
    steps: Mapping[str, PlannedStep]
    outputs: Mapping[str, StepOutput] = field(default_factory=dict)
    continue_on_failure: bool = True
    force_rerun: bool = False
    notes: tuple[str, ...] = ()
    experiment: str = "Default"
    environments: tuple[StepEnvironment, ...] = ()
    images: tuple[ContainerImage, ...] = ()

    def only(self, wanted: Iterable[str]) -> RunPlan:
        """The plan of these steps and of all that they need; raises UnknownNameError for a name that is no step."""
        needed: set[str] = set()
        queue = list(wanted)
        for name in queue:  # grows while it is read
            if name not in self.steps:
                raise UnknownNameError(f"--steps: {name!r} is no step. The steps are {', '.join(self.steps)}.")
            if name not in needed:
                needed.add(name)
                queue += self.steps[name].after
        kept = {name: step for name, step in self.steps.items() if name in needed}
        outputs = {name: output for name, output in self.outputs.items() if output.step in needed}
        return replace(self, steps=kept, outputs=outputs)
