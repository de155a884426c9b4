"""What Azure ML's YAML says, as frozen dataclasses: no SDK, no torch, nothing resolved yet.

A value that is still a binding (``${{parent.inputs.epochs}}``) stays the text that was written; ``expressions.py``
reads it. All paths are absolute. Field names are those of the YAML, except where our vocabulary has a better word
(``processes_per_node`` for ``process_count_per_instance``, ``nodes`` for ``instance_count``, ``steps`` for ``jobs``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from allranks.errors import Problem
from allranks.spec.needs import CountOrBinding, Distribution, Environment, Resources

Literal: TypeAlias = str | int | float | bool
"""A literal value as YAML gives it."""

NO_TEXTS: Mapping[str, str] = MappingProxyType({})

LITERAL_TYPES = ("string", "integer", "number", "boolean")
DATA_TYPES = ("uri_file", "uri_folder", "mltable", "mlflow_model", "custom_model", "triton_model", "path")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a document was read from, so that an error can name file and line.

    Attributes:
        file: the YAML file, or None for a document that was built in memory (a Python pipeline).
        base: the folder that relative paths of the document start from.
        lines: dotted path (``inputs.epochs.default``) to 1-based line.
        prefix: dotted path of a component that is written inside a pipeline (``jobs.train.component``), else empty.
        texts: dotted path to the scalar as written, where YAML made something else of it (``1.10``, ``yes``).
        problems: what reading found; once a document has been returned by ``read`` these are warnings only.
    """

    file: Path | None
    base: Path
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    prefix: str = field(default="", compare=False)
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False, repr=False)

    def place(self, where: str) -> str:
        """Return ``where`` as a dotted path of the whole document."""
        return ".".join(part for part in (self.prefix, where) if part)

    def problem(self, where: str, message: str, hint: str = "", severity: str = "error") -> Problem:
        """Make a Problem about ``where`` with this document's file and, as near as it is known, the line."""
        place = self.place(where)
        nearest = place
        while nearest and nearest not in self.lines:
            nearest = nearest.rpartition(".")[0]
        return Problem(message, place, self.file, self.lines.get(nearest), hint, severity)


@dataclass(frozen=True, slots=True)
class Input:
    """An input that a component or a pipeline declares.

    ``min`` and ``max`` are inclusive. A pipeline job's input also has a value; it is kept in ``default``.
    """

    name: str
    type: str = "string"
    default: Literal | Data | None = None
    optional: bool = False
    enum: tuple[Literal, ...] = ()
    min: float | None = None
    max: float | None = None
    mode: str | None = None
    description: str = ""

    @property
    def is_data(self) -> bool:
        """Whether a path goes in here, rather than a literal."""
        return self.type in DATA_TYPES

    @property
    def required(self) -> bool:
        """Whether a step must give a value: neither optional nor with a default."""
        return not self.optional and self.default is None


@dataclass(frozen=True, slots=True)
class Output:
    """An output that a component or pipeline declares, or the settings that a step gives to one.

    Attributes:
        path: where the output should go (a pipeline's output or a step's setting); None for the default place.
        asset_name: the name under which the output is registered as data or model when the step has succeeded.
    """

    name: str
    type: str | None = None
    mode: str | None = None
    description: str = ""
    path: str | None = None
    asset_name: str | None = None
    asset_version: str | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """A data input's value: a path or an address, with the type that the user stated (None: take the port's)."""

    path: str
    type: str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """A command component: what one node runs, and the promise it makes to its users.

    Attributes:
        noun: how a message calls such a document.
        kind: that of a step that runs it.
        code: the folder (or single file) that becomes the snapshot; None when the command needs no files.
        includes: ``additional_includes``, absolute, in the order written.
        timeout: seconds, from ``limits.timeout``; a binding stays text; None for no limit.
        tier: ``queue_settings.job_tier`` in lower case; ``spot`` machines are cheap and may be taken away.
    """

    noun: ClassVar[str] = "command component"
    step_kind: ClassVar[str] = "command"
    name: str
    source: Source
    version: str = ""
    display_name: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    inputs: Mapping[str, Input] = field(default_factory=lambda: MappingProxyType({}))
    outputs: Mapping[str, Output] = field(default_factory=lambda: MappingProxyType({}))
    command: str = ""
    code: Path | None = None
    includes: tuple[Path, ...] = ()
    environment: Environment = field(default_factory=Environment)
    environment_variables: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    distribution: Distribution | None = None
    resources: Resources = field(default_factory=Resources)
    is_deterministic: bool = True
    timeout: CountOrBinding = None
    tier: str | None = None

    @property
    def runs_command(self) -> bool:
        """Whether its ranks run ``command``."""
        return True

    @property
    def is_generated(self) -> bool:
        """Whether mldesigner made it from a function of Python, to which it gives the inputs itself."""
        return self.command.startswith("mldesigner execute")


@dataclass(frozen=True, slots=True)
class Branch:
    """The steps that run where a condition is true, and those that run where it is false, by name."""

    true_block: tuple[str, ...]
    false_block: tuple[str, ...]

    @property
    def targets(self) -> dict[str, bool]:
        """Each of these steps with the decision at which it runs."""
        return dict.fromkeys(self.false_block, False) | dict.fromkeys(self.true_block, True)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The search of a sweep step; the trial is the step's component.

    Attributes:
        algorithm: ``random``, ``sobol`` (random sampling with that rule), ``grid`` or ``bayesian``.
        space: input name to the distribution as written, ``{"type": "choice", "values": [...]}``.
        objective: (goal, primary metric), goal being ``minimize`` or ``maximize``.
        limits: ``max_total_trials``, ``max_concurrent_trials``, ``timeout``, ``trial_timeout`` as written.
        early_termination: the policy's ``type``, ``evaluation_interval``, ``delay_evaluation`` (0 where the YAML is
            silent) and its own setting; None without a policy.
        seed: of random and sobol sampling.
        log_base: what loguniform and its like are powers of.
    """

    algorithm: str
    space: Mapping[str, Mapping[str, object]]
    objective: tuple[str, str]
    limits: Mapping[str, object]
    early_termination: Mapping[str, object] | None = None
    seed: int | None = None
    log_base: float = math.e


@dataclass(frozen=True, slots=True)
class Step:
    """A component's use in a pipeline. What is None or absent here is taken from the component.

    Attributes:
        inputs: input name to a literal, to Data, or to a text with bindings.
        outputs: output name to the step's settings for it, or to the ``${{parent.outputs.x}}`` that it feeds.
        timeout: seconds, a binding, or None.
        is_inline: whether its command stands on the step itself.
        kind: the name of its reader in ``spec.steps``.
    """

    name: str
    component: Component | Pipeline
    inputs: Mapping[str, Literal | Data] = field(default_factory=lambda: MappingProxyType({}))
    outputs: Mapping[str, Output | str] = field(default_factory=lambda: MappingProxyType({}))
    distribution: Distribution | None = None
    resources: Resources = field(default_factory=Resources)
    environment_variables: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    timeout: CountOrBinding = None
    compute: str | None = None
    display_name: str = ""
    sweep: Sweep | None = None
    tier: str | None = None
    is_inline: bool = False
    kind: str = "command"
    branch: Branch | None = None

    @property
    def has_component(self) -> bool:
        """Whether its component is known here; one that could not be read stands for it without a name."""
        return bool(self.component.name)


@dataclass(frozen=True, slots=True)
class Settings:
    """A pipeline's ``settings``; None where the YAML is silent."""

    default_compute: str | None = None
    force_rerun: bool | None = None
    continue_on_step_failure: bool | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline job or a pipeline component: steps by name, in the order written.

    Attributes:
        kind: ``job`` or ``component``; empty where the document does not say.
    """

    noun: ClassVar[str] = "pipeline"
    step_kind: ClassVar[str] = "pipeline"
    name: str
    source: Source
    version: str = ""
    display_name: str = ""
    description: str = ""
    experiment_name: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    inputs: Mapping[str, Input] = field(default_factory=lambda: MappingProxyType({}))
    outputs: Mapping[str, Output] = field(default_factory=lambda: MappingProxyType({}))
    steps: Mapping[str, Step] = field(default_factory=lambda: MappingProxyType({}))
    settings: Settings = field(default_factory=Settings)
    kind: str = ""
