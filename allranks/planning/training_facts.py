"""What a target's own settings say of a training: its batch, its division over ranks, its weights where they follow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from allranks.planning.step import BUCKET_BYTES, GRADIENTS_SHARDED, REPLICATED, SHARDED, ModelExchange
from allranks.spec import Component, Data, Pipeline, Step
from allranks.spec.check_machines import Compute, StepMachines, machines_of_steps
from allranks.spec.values import Values, default_values, resolved_value

PUBLISHED_WEIGHTS: Mapping[str, int] = MappingProxyType(
    {
        "resnet18": 11_689_512,
        "resnet34": 21_797_672,
        "resnet50": 25_557_032,
        "vit_small_patch16": 22_050_664,
        "vit_base_patch16": 86_567_656,
        "vit_s": 22_052_968,
        "vit_b": 86_569_192,
    }
)
"""Weights of architectures whose number hardly depends on the data: for 1,000 classes and pictures of 224 x 224."""

_WIDTHS = {"fp64": 8, "bf16": 2, "fp16": 2}  # bytes of a number in a pass; fp32 has 4
_HOROVOD_BUCKET = 128 * 2**20  # its fusion buffer


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """One training step of a target.

    Attributes:
        step: its name, dotted for a nested one.
        component: that it uses.
        machines: where it runs, and with how many ranks.
        batch_size: rows of an optimizer step over all ranks.
        accumulation: micro-batches of a rank.
        values: its inputs that are known before it runs.
        weights: number of weights; None where the settings do not say.
        tokens: of one row; None where it has none, or they are not known.
    """

    step: str
    component: str
    machines: StepMachines
    batch_size: int
    accumulation: int
    values: Mapping[str, Any]
    weights: int | None
    tokens: int | None = None

    def exchange(self, weights: float) -> ModelExchange:
        """What its ranks exchange, for so many weights."""
        width = _WIDTHS.get(str(self.values.get("precision", "")), 4)
        division = self.division
        # DDP, Horovod and FSDP exchange gradients in the precision of the weights that are kept, which is not halved.
        gradient = 8 if width == 8 else 2 if self.component == "train_deepspeed" and width == 2 else 4
        return ModelExchange(
            gradient_bytes=weights * gradient,
            weight_bytes=0.0 if division == REPLICATED else weights * width,
            division=division,
            units=int(self.values.get("layers") or 1) + 1,
            bucket_bytes=_HOROVOD_BUCKET if "horovod" in self.component else BUCKET_BYTES,
        )

    @property
    def groups(self) -> tuple[int, int]:
        """Ranks that share each layer, and ranks that have the layers one after the other."""
        return _count(self.values.get("tensor_parallel")), _count(self.values.get("pipeline_parallel"))

    @property
    def division(self) -> str:
        """How the weights lie on the ranks."""
        values = self.values
        if self.component == "train_fsdp":
            return SHARDED if values.get("reshard_after_forward", "true") in ("true", True) else GRADIENTS_SHARDED
        if self.component == "train_deepspeed":
            return {3: SHARDED, 2: GRADIENTS_SHARDED}.get(int(values.get("zero_stage") or 0), REPLICATED)
        if self.component == "train_transformers":
            return {"fsdp": SHARDED, "deepspeed": GRADIENTS_SHARDED}.get(str(values.get("sharding")), REPLICATED)
        return REPLICATED


def training_steps(pipeline: Pipeline, computes: Mapping[str, Compute] | None = None) -> list[TrainingFacts]:
    """The steps of a pipeline that train: those of components with a ``batch_size`` that train in parallel.

    ``computes`` are the clusters that are known, by name.
    """
    known = default_values(pipeline)
    vocabulary = next(iter(_all_values(pipeline, known, "vocabulary")), None)
    tokens = next(iter(_all_values(pipeline, known, "sequence_length")), None)
    found = machines_of_steps(pipeline, known, computes or {})
    facts = (_facts(name, machines, vocabulary, tokens) for name, machines in found)
    return [one for one in facts if one is not None]


def _facts(name: str, machines: StepMachines, vocabulary: Any, tokens: Any) -> TrainingFacts | None:
    component = machines.component
    kind = component.tags.get("allranks")
    is_trainer = kind == "training" or (kind is None and machines.distribution.type != "")
    if "batch_size" not in component.inputs or not is_trainer or "parameter_server" in component.name:
        return None
    values = _step_values(machines.step, component, machines.known)
    batch = values.get("batch_size")
    if not isinstance(batch, int) or batch < 1:
        return None
    return TrainingFacts(
        step=name,
        component=component.name,
        machines=machines,
        batch_size=batch,
        accumulation=_count(values.get("accumulation_steps")),
        values=MappingProxyType(values),
        weights=_weights(values, vocabulary),
        tokens=tokens if isinstance(tokens, int) and "width" in values else None,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _step_values(step: Step, component: Component, known: Values) -> dict[str, Any]:
    """The values of the inputs that are no data and are known beforehand."""
    found = {}
    for name, declared in component.inputs.items():
        value = resolved_value(step.inputs.get(name, declared.default), known)
        if value is not None and not isinstance(value, Data) and not (isinstance(value, str) and "${{" in value):
            found[name] = value
    return found


def _all_values(pipeline: Pipeline, known: Values, name: str) -> Iterator[Any]:
    """What an input of that name has in any step of the pipeline."""
    for step in pipeline.steps.values():
        component = step.component
        if isinstance(component, Component) and name in component.inputs:
            value = resolved_value(step.inputs.get(name, component.inputs[name].default), known)
            if isinstance(value, int):
                yield value


def _weights(values: Mapping[str, Any], vocabulary: Any) -> int | None:
    """The number of weights that the settings say; None for a model of the user's, and for one that the data shapes."""
    architecture = values.get("architecture")
    if architecture in PUBLISHED_WEIGHTS:
        return PUBLISHED_WEIGHTS[str(architecture)]
    layers, width = values.get("layers"), values.get("width")
    if values.get("initial_model") or architecture or not isinstance(vocabulary, int):
        return None
    if not isinstance(layers, int) or not isinstance(width, int) or not layers or not width:
        return None
    tied = values.get("tie_embeddings") in ("true", True)
    heads, shared = values.get("heads"), values.get("key_value_heads")
    share = shared / heads if isinstance(shared, int) and isinstance(heads, int) and heads else 1.0
    hidden = values.get("feed_forward_width")
    hidden = hidden if isinstance(hidden, int) and hidden else 32 * math.ceil(8 * width / 3 / 32)
    block = (2 + 2 * share) * width * width + 3 * width * hidden + 2 * width
    return round(layers * block + width + (1 if tied else 2) * vocabulary * width)
