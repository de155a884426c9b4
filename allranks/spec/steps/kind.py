"""What every kind of step has alike: its keys, its component, its wiring and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from allranks.spec import ports, schema, settings
from allranks.spec.model import Component, Pipeline, Step
from allranks.spec.section import Section

FindComponent: TypeAlias = Callable[[Section, str, str], Component | Pipeline | None]
"""Reads the component that a key of a section holds or names; the last argument is the name of one that has none."""


@dataclass(frozen=True)
class StepReader:
    """Reads one kind of step, of those that run here.

    Attributes:
        name: the YAML's ``type``.
        keys: what the YAML may say of it.
        noun: how a message calls it.
        ignored: keys that Azure ML accepts and ignores, with the reason.
        component_key: where its component stands.
        component_type: what that has to be.
        without_component: what else it has none of where its component is missing.
        takes_step_kind: whether another type of step would take a component that this one does not.
    """

    name: str
    keys: frozenset[str]
    noun: str
    ignored: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    component_key: str = "component"
    component_type: type[Component | Pipeline] = Component
    without_component: str = ""
    takes_step_kind: bool = True

    @property
    def is_nested(self) -> bool:
        """Whether its component is a pipeline."""
        return self.component_type is Pipeline

    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read a step of this kind; without a component that could be read it gets one without a name."""
        step = bare_step(section, name)
        section.known(
            self.keys,
            self.noun,
            self.ignored,
            is_open=True,
            needed={self.component_key},
            unchecked=schema.STEP_TEXTS,
        )
        settings.check_cloud_keys(section)
        component = self._component(section, name, find)
        step = replace(step, component=component or step.component)
        return replace(
            self.with_limits(step, section),
            distribution=settings.read_distribution(section),
            resources=settings.read_resources(section),
            environment_variables=settings.read_variables(section),
            compute=settings.read_compute(section),
            display_name=section.text("display_name"),
            tier=settings.read_tier(section),
            kind=self.name,
        )

    def with_limits(self, step: Step, section: Section) -> Step:
        """Read when the step ends, and what else only this kind has."""
        return replace(step, timeout=settings.read_timeout(section))

    def _component(self, section: Section, name: str, find: FindComponent) -> Component | Pipeline | None:
        key = self.component_key
        if key not in section:
            message = f"a {self.name} step has no '{key}'{self.without_component}."
            section.wrong("", message, f"Write {key}: ./component.yaml.")
            return None
        component = find(section, key, name)
        if component is None or type(component) is self.component_type:
            return component
        message = f"is a {component.noun} on a step of type '{self.name}'."
        section.wrong(key, message, f"Write type: {component.step_kind}." if self.takes_step_kind else "")
        return None


def bare_step(section: Section, name: str) -> Step:
    """Read what every step has: what it gives to its inputs, and where its outputs go."""
    unread = Component("", replace(section.source, prefix=section.where, problems=()))
    inputs = ports.read_step_inputs(section.mapping("inputs"))
    outputs = ports.read_step_outputs(section.mapping("outputs"))
    return Step(name, unread, MappingProxyType(inputs), MappingProxyType(outputs))


def inline_step(section: Section, name: str, component: Component, kind: str) -> Step:
    """Read a step whose component stands on it; ``infer_port_types`` gives that the inputs and outputs."""
    settings.check_cloud_keys(section)
    return replace(
        bare_step(section, name),
        component=component,
        environment_variables=settings.read_variables(section),
        timeout=settings.read_timeout(section),
        compute=settings.read_compute(section),
        display_name=section.text("display_name"),
        is_inline=True,
        kind=kind,
    )
