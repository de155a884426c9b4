"""What every kind of step has alike: its keys, its component, its wiring and its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from allranks.spec import ports, settings
from allranks.spec.model import Component, Count, Pipeline, Step, Sweep
from allranks.spec.section import Section

FindComponent: TypeAlias = Callable[[Section, str, str], Component | Pipeline | None]
"""Reads the component that a key of a section holds or names; the last argument is the name of one that has none."""


@dataclass(frozen=True)
class StepKind:
    """A kind of step that runs here.

    Attributes:
        name: the YAML's ``type``.
        keys: what the YAML may say of it.
        noun: how a message calls it.
        ignored: keys that Azure ML accepts and ignores, with the reason.
        component_key: where its component stands.
        is_nested: whether that is a pipeline.
        without_component: what else it has none of where its component is missing.
    """

    name: str
    keys: frozenset[str]
    noun: str
    ignored: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    component_key: str = "component"
    is_nested: bool = False
    without_component: str = ""

    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read a step of this kind; without a component that could be read it gets one without a name."""
        step = bare_step(section, name)
        self.check_keys(section)
        component = self._component(section, name, find)
        sweep = None if component is None else self.read_search(section)
        return replace(
            step,
            component=component or step.component,
            distribution=settings.distribution(section),
            resources=settings.resources(section),
            environment_variables=settings.environment_variables(section),
            timeout=self.read_timeout(section),
            compute=settings.compute(section),
            display_name=section.text("display_name"),
            sweep=sweep,
            tier=settings.tier(section),
        )

    def check_keys(self, section: Section) -> None:
        """Note keys that such a step does not have."""
        section.known(self.keys, self.noun, self.ignored)

    def read_search(self, _section: Section, /) -> Sweep | None:
        """Read what a sweep adds to its trial; None for all others."""
        return None

    def read_timeout(self, section: Section, /) -> Count:
        """Read the seconds after which the step ends."""
        return settings.timeout(section)

    def other_component(self, found: str, /) -> str:
        """Say what to do about a component of another kind, which is ``pipeline`` or ``command``."""
        return f"Write type: {found}."

    def _component(self, section: Section, name: str, find: FindComponent) -> Component | Pipeline | None:
        key = self.component_key
        if key not in section:
            message = f"a {self.name} step has no '{key}'{self.without_component}."
            section.wrong("", message, f"Write {key}: ./component.yaml.")
            return None
        component = find(section, key, name)
        if component is None or self.is_nested == isinstance(component, Pipeline):
            return component
        found = "pipeline" if isinstance(component, Pipeline) else "command"
        message = f"is a {document_noun(type(component))} on a step of type '{self.name}'."
        section.wrong(key, message, self.other_component(found))
        return None


def bare_step(section: Section, name: str) -> Step:
    """Read what every step has: what it gives to its inputs, and where its outputs go."""
    unread = Component("", replace(section.source, prefix=section.where, problems=()))
    inputs = ports.step_inputs(section.mapping("inputs"))
    outputs = ports.step_outputs(section.mapping("outputs"))
    return Step(name, unread, MappingProxyType(inputs), MappingProxyType(outputs))


def document_noun(kind: type[Component | Pipeline]) -> str:
    """How a message calls such a document."""
    return "pipeline" if issubclass(kind, Pipeline) else "command component"
