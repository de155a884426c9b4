"""A step that copies its inputs into its one output; importing from and exporting to other stores is Azure's alone.

The rules are those of ``DataTransferCopyComponent`` in azure-ai-ml: one output, which is of the type of a single input
and a folder for several.
"""

from __future__ import annotations

from allranks.spec import schema
from allranks.spec.component_kinds import CopyComponent
from allranks.spec.model import Step
from allranks.spec.read_transfer import read_copy, read_task
from allranks.spec.section import Section
from allranks.spec.steps.kind import FindComponent, StepReader, bare_step, inline_step

_ELSEWHERE = "Take the step out, or submit the pipeline to Azure."


class _DataTransferReader(StepReader):
    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read either form: with a component, or with the copy's mode on the step."""
        task = read_task(section, f"step '{name}'", _ELSEWHERE, in_any_case=True)
        if task is None:
            return bare_step(section, name)
        if "component" not in section:
            section.known(schema.INLINE_COPY_STEP, self.noun)
            return inline_step(section, name, read_copy(section, name), self.name)
        return super().read(section, name, find)


DATA_TRANSFER_READER = _DataTransferReader(
    name="data_transfer",
    keys=schema.COPY_STEP,
    noun="a data_transfer step",
    ignored={"data_copy_mode": "the component's own counts."},
    component_type=CopyComponent,
    without_component=" and no 'task'",
)
