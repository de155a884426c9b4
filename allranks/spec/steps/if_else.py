"""A step that decides: which of two blocks of steps runs, by a condition that is known when the pipeline gets there.

The rules are those of ``ConditionNode`` and ``ConditionNodeSchema`` in azure-ai-ml: the condition is a boolean or a
binding to something of the pipeline, there is one block at least, and no step stands in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from allranks.spec import schema
from allranks.spec.component_kinds import DecidingComponent
from allranks.spec.expressions import single_reference
from allranks.spec.model import Branch, Input, Literal, Step
from allranks.spec.section import Section, shown_value
from allranks.spec.steps.kind import FindComponent, StepReader

CONDITION = "condition"
_BLOCKS = ("true_block", "false_block")
_TARGET = re.compile(r"\s*\$\{\{\s*parent\.jobs\.([\w-]+)\s*\}\}\s*", re.ASCII)
_WRITE = "Write ${{parent.jobs.STEP.outputs.NAME}} or ${{parent.inputs.NAME}}."
_WRITE_BLOCK = "Write true_block: ${{parent.jobs.STEP}}, or a list of such."


class _IfElseReader(StepReader):
    def read(self, section: Section, name: str, find: FindComponent) -> Step:  # noqa: ARG002 it has no component
        """Read the condition, as the one input of a component that decides, and the names of both blocks' steps."""
        section.known(self.keys, self.noun, self.ignored)
        condition = _read_condition(section)
        blocks = {key: _read_block(section, key) for key in _BLOCKS}
        both = [one for one in blocks["true_block"] if one in blocks["false_block"]]
        if not any(key in section for key in _BLOCKS):
            section.wrong("", "has neither a true_block nor a false_block.", _WRITE_BLOCK)
        elif both:
            section.wrong("false_block", f"{', '.join(both)}: stands in the true_block too.", "Take it out of one.")
        source = replace(section.source, prefix=section.where, problems=())
        declared = MappingProxyType({CONDITION: Input(CONDITION, "boolean")})
        component = DecidingComponent(self.name, source, inputs=declared, is_deterministic=False)
        inputs: dict[str, Literal] = {} if condition is None else {CONDITION: condition}
        branch = Branch(blocks["true_block"], blocks["false_block"])
        return Step(name, component, MappingProxyType(inputs), kind=self.name, branch=branch)


def _read_condition(section: Section) -> Literal | None:
    written = section.data.get(CONDITION)
    if written is None:
        section.wrong("", f"has no '{CONDITION}'.", _WRITE)
        return None
    if isinstance(written, str):
        reference = single_reference(written)
        if reference is not None and reference.scope in ("parent.inputs", "parent.jobs"):
            return written
        if written.lower() in ("true", "false"):  # as the SDK's field reads it
            return written.lower() == "true"
    elif isinstance(written, bool):
        return written
    section.wrong(CONDITION, f"{shown_value(written)} is neither a boolean nor a binding to one.", _WRITE)
    return None


def _read_block(section: Section, key: str) -> tuple[str, ...]:
    """The names of the steps of a block, which is one binding or a list of them."""
    written = section.data.get(key)
    values: Iterable[object] = written if isinstance(written, list) else () if written is None else (written,)
    found = []
    for value in values:
        match = _TARGET.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            section.wrong(key, f"{shown_value(value)} names no step.", _WRITE_BLOCK)
        else:
            found.append(match[1])
    return tuple(dict.fromkeys(found))


IF_ELSE_READER = _IfElseReader(
    name="if_else",
    keys=schema.IF_ELSE_STEP,
    noun="an if_else step",
    ignored=dict.fromkeys(schema.COMPONENT_STEP, "an if_else step runs nothing itself."),
)
