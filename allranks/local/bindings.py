"""What a setting of a step comes to: bindings followed to their values, paths and counts as this machine has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from allranks.errors import Problem, UsageError
from allranks.local.assets import CloudStandIns, mapping_hint
from allranks.local.input_sources import (
    COMPOSED,
    DEFAULT,
    OUTPUT,
    SEARCHED,
    WRITTEN,
    InputSource,
    given_source,
    source_in_file,
)
from allranks.local.plan import InputValue, StepOutput
from allranks.spec import (
    Data,
    Input,
    Output,
    Pipeline,
    Reference,
    Step,
    find_references,
    literal_text,
    replace_references,
    single_reference,
)
from allranks.spec.model import Literal

_Resolved: TypeAlias = Literal | Path | StepOutput | None
"""What a binding comes to; None for an optional input without a value."""

_TRIED = InputSource(SEARCHED, "the search space")


@dataclass(frozen=True, slots=True)
class PlanFindings:
    """What is wrong, what a user should know all the same, what stands for the cloud, and what was given for this run.

    The last by whole names; see ``settings.given_names``.
    """

    stands: CloudStandIns
    given: Mapping[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PipelineScope:
    """What ``parent`` means to the steps of one pipeline; what is wrong with these goes to ``findings``.

    Attributes:
        prefix: the dotted name of the pipeline's own step and a dot; empty for the outermost.
        inputs: the pipeline's inputs, resolved.
        sources: where each of these comes from.
        outputs: what is said of the pipeline's outputs, here and by those that this one is a step of.
        chosen_by: the steps that decide whether the pipeline's own step runs, as ``PlannedStep`` has them.
    """

    pipeline: Pipeline
    findings: PlanFindings
    prefix: str = ""
    inputs: Mapping[str, _Resolved] = field(default_factory=dict)
    chosen_by: tuple[tuple[str, bool], ...] = ()
    sources: Mapping[str, InputSource] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)

    def nested(self, step: Step, pipeline: Pipeline) -> PipelineScope:
        """The scope of the pipeline that is a step of this one."""
        inputs, chosen_by = self.resolve_inputs(step), self.deciding(step.name)
        sources = self.input_sources(step, pipeline.inputs)
        outputs = {name: self.output_settings(step, one) for name, one in pipeline.outputs.items()}
        prefix = f"{self.prefix}{step.name}."
        return PipelineScope(pipeline, self.findings, prefix, inputs, chosen_by, sources, outputs)

    def output_settings(self, step: Step, declared: Output) -> Output:
        """A step's output with what the step says of it, and the pipeline whose output it is."""
        setting = step.outputs.get(declared.name)
        own = setting if isinstance(setting, Output) else None
        reference = single_reference(setting.path if isinstance(setting, Output) else setting)
        outer = self.outputs.get(reference.name) if reference is not None else None
        for said in (one for one in (outer, own) if one is not None):
            declared = replace(
                declared,
                mode=said.mode or declared.mode,
                path=said.path or declared.path,
                asset_name=said.asset_name or declared.asset_name,
                asset_version=said.asset_version or declared.asset_version,
            )
        return declared

    def deciding(self, name: str) -> tuple[tuple[str, bool], ...]:
        """The steps that decide whether a step of this pipeline runs, each with the decision at which it does."""
        branches = {one.name: one.branch.targets for one in self.pipeline.steps.values() if one.branch is not None}
        own = ((self.prefix + one, targets[name]) for one, targets in branches.items() if name in targets)
        return (*self.chosen_by, *own)

    def resolve_inputs(self, step: Step, searched: Collection[str] = ()) -> Mapping[str, _Resolved]:
        """A step's inputs, but for those that get their values while it runs."""
        return MappingProxyType(
            {
                name: self._resolve(step.inputs.get(name), declared, f"jobs.{step.name}.inputs.{name}")
                for name, declared in step.component.inputs.items()
                if name not in searched
            }
        )

    def input_sources(self, step: Step, wanted: Iterable[str]) -> Mapping[str, InputSource]:
        """Where a step's inputs come from, those included that its sweep tries values of."""
        found = {name: self._source(step, name) for name in wanted}
        tried = dict.fromkeys(step.sweep.space if step.sweep else (), _TRIED)
        return MappingProxyType({**found, **tried})

    def own_source(self, declared: Input) -> InputSource:
        """Where an input of the outermost pipeline comes from."""
        name = declared.name
        if name in self.findings.given:
            return given_source(self.findings.given[name])
        return source_in_file(DEFAULT, self.pipeline.source, f"inputs.{name}")

    def _source(self, step: Step, name: str) -> InputSource:
        whole = f"{self.prefix}{step.name}.{name}"
        if whole in self.findings.given:
            return given_source(self.findings.given[whole])
        value = step.inputs.get(name)
        if value is None:
            return source_in_file(DEFAULT, step.component.source, f"inputs.{name}")
        text = value.path if isinstance(value, Data) else str(value)
        found = [self._origin(reference) for reference in find_references(text)]
        if single_reference(text) is not None:
            return found[0]
        if found:
            return InputSource(COMPOSED, f"made from {' and '.join(one.words for one in found)}")
        return source_in_file(WRITTEN, self.pipeline.source, f"jobs.{step.name}.inputs.{name}")

    def _origin(self, reference: Reference) -> InputSource:
        if reference.scope == "search_space":
            return _TRIED
        if reference.scope == "parent.inputs":
            name = reference.name
            owner = self.prefix.removesuffix(".") or "the pipeline"
            return self.sources[name if name in self.sources else name.removesuffix(".path")].through(
                f"input {name} of {owner}"
            )
        return InputSource(OUTPUT, f"output {reference.name} of {self.prefix}{reference.step}")

    def own_input(self, declared: Input) -> _Resolved:
        """The value of an input of the outermost pipeline: what the user or the YAML gave, or the default."""
        value = declared.default
        return self._path(value.path, f"inputs.{declared.name}") if isinstance(value, Data) else value

    def _resolve(self, given: Literal | Data | None, declared: Input, where: str) -> _Resolved:
        value = declared.default if given is None else given
        if isinstance(value, Data):
            reference = single_reference(value.path)
            return self._path(value.path, where) if reference is None else self._bound(reference, declared, where)
        if isinstance(value, str):
            reference = single_reference(value)
            if reference is not None:
                return self._bound(reference, declared, where)
            if find_references(value):
                return self.as_text(value)
            if declared.is_data:
                return self._path(value, where)
        return value

    def _bound(self, reference: Reference, declared: Input, where: str) -> _Resolved:
        """What a whole binding comes to: the input's own default where the pipeline's has no value."""
        found = self._follow(reference)
        if found is not None:
            return found
        if reference.step and not declared.optional:
            source, hint = self.pipeline.source, "Write ${{parent.outputs.NAME}} at an output of a step in there."
            message = f"{reference}: no step writes this output."
            self.findings.problems.append(Problem(message, where, source.file, source.lines.get(where), hint))
        default = declared.default
        return self._path(default.path, where) if isinstance(default, Data) else default

    def _path(self, text: str, where: str) -> Path | None:
        """A data path as a path on this machine; addresses in the cloud are no such thing."""
        if ("://" in text and not text.startswith("file://")) or text.startswith("azureml:"):
            found, message, hint = self._in_cloud(text)
        else:
            path = self.pipeline.source.base / Path(text.removeprefix("file://")).expanduser()
            found = path.resolve() if path.exists() else None
            message, hint = f"{str(path)!r} does not exist.", "Give a file or folder that does."
        if found is None:
            source = self.pipeline.source
            self.findings.problems.append(Problem(message, where, source.file, source.lines.get(where), hint))
        return found

    def _in_cloud(self, address: str) -> tuple[Path | None, str, str]:
        """What stands for an address; where nothing does, why not, and what to do about it."""
        try:
            return self.findings.stands.find(address), f"{address!r} lies in the cloud.", mapping_hint(address)
        except UsageError as error:
            return None, error.message, error.hint

    def _follow(self, reference: Reference) -> _Resolved:
        """What a binding comes to; the check has seen that it exists."""
        if reference.scope == "search_space":
            return str(reference)  # each trial has a value of its own
        if reference.scope == "parent.inputs":
            name = reference.name
            return self.inputs[name if name in self.inputs else name.removesuffix(".path")]
        return self._step_output(reference.step, reference.name)

    def _step_output(self, step_name: str, port: str) -> StepOutput | None:
        """The output of the step that writes an output of a step, however deeply it is nested."""
        component = self.pipeline.steps[step_name].component
        if isinstance(component, Pipeline):
            return PipelineScope(component, self.findings, f"{self.prefix}{step_name}.").producer(port)
        return StepOutput(self.prefix + step_name, port)

    def producer(self, output: str) -> StepOutput | None:
        """The step output that the pipeline's output is bound to."""
        for step in self.pipeline.steps.values():
            for port, setting in step.outputs.items():
                text = setting if isinstance(setting, str) else setting.path
                reference = single_reference(text) if text else None
                if reference is not None and reference.scope == "parent.outputs" and reference.name == output:
                    return self._step_output(step.name, port)
        return None

    def as_text(self, value: object) -> str:
        """A setting as text, its bindings followed."""

        def text_of(reference: Reference) -> str:
            found = self._follow(reference)
            return "" if found is None else str(planned_value(found))

        return replace_references(str(value), text_of)

    def count(self, value: object, key: str, step: Step) -> int:
        """A number of nodes, processes or seconds, at least 1; 1 where the YAML is silent."""
        if value is None:
            return 1
        text = self.as_text(value)
        if text.isdigit() and int(text) >= 1:
            return int(text)
        self.refuse(step, f"{key} is {text!r}; it is a whole number from 1.")
        return 1

    def refuse(self, step: Step, message: str) -> None:
        """Note what is wrong with a step."""
        source, where = self.pipeline.source, f"jobs.{step.name}"
        place = f"jobs.{self.prefix}{step.name}"
        self.findings.problems.append(Problem(message, place, source.file, source.lines.get(where)))


def planned_value(value: Literal | Path | StepOutput) -> InputValue:
    """A value as a plan holds it: literals as text."""
    return value if isinstance(value, Path | StepOutput) else literal_text(value)
