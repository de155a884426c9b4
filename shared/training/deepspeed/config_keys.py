"""Does DeepSpeed know what the configuration file says? It ignores what it does not know; here that is an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import torch
from deepspeed.runtime import lr_schedules

from shared.training.deepspeed.config_file import (
    ACCUMULATION_KEY,
    AUTO_VALUE,
    BATCH_KEY,
    MICRO_BATCH_KEY,
    ConfigFile,
    read_section,
    suggest_key,
)
from shared.training.deepspeed.engine_types import StepScheduler

ZERO_KEY: Final = "zero_optimization"
TORCH_OPTIMIZERS: Final[Mapping[str, type[torch.optim.Optimizer]]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
"""Those whose state the checkpoints of this component hold; torch's class says which parameters there are."""
_ADAM: Final = ("torch_adam", "adam_w_mode", "fp32_optimizer_states", "bias_correction")
FILE_SCHEDULERS: Final[Mapping[str, Callable[..., StepScheduler]]] = {
    "WarmupLR": lr_schedules.WarmupLR,
    "WarmupDecayLR": lr_schedules.WarmupDecayLR,
    "WarmupCosineLR": lr_schedules.WarmupCosineLR,
}

_SECTIONS: Final = (
    *(ZERO_KEY, "fp16", "bf16", "bfloat16", "optimizer", "scheduler", "data_types", "timers", "flops_profiler"),
    *("comms_logger", "tensorboard", "wandb", "csv_monitor", "comet"),
)
_PLAIN: Final = (
    *(BATCH_KEY, MICRO_BATCH_KEY, ACCUMULATION_KEY),
    *("gradient_clipping", "communication_data_type", "gradient_predivide_factor"),
    *("prescale_gradients", "gradient_allreduce_op", "disable_allgather", "disable_python_gc", "log_level"),
    *("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "vocabulary_size"),
    *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
)
UNUSED_KEYS: Final = ("activation_checkpointing", "aio", "checkpoint", "dataloader_drop_last", "datastates_ckpt")
"""Of what this component does in its own way, or not at all."""

_ELSEWHERE: Final = "model parallelism is in train_fsdp"
_REFUSED: Final[Mapping[str, str]] = {
    "autotuning": "compare short runs with other values of zero_stage and accumulation_steps",
    "compile": "use the input compile",
    "torch_autocast": "use fp16 or bf16",
    "data_efficiency": "the order of the rows is the component's",
    "managed_gradient_accumulation": "use the input accumulation_steps",
    "weight_quantization": "it is for inference",
    "hybrid_engine": "it is for generation while training",
    **dict.fromkeys(("tensor_parallel", "pipeline", "expert_parallel", "sequence_parallel_size"), _ELSEWHERE),
    **dict.fromkeys(("data_parallel_size", "use_data_before_expert_parallelism"), _ELSEWHERE),
    **dict.fromkeys(("seq_parallel_communication_data_type",), _ELSEWHERE),
}
_KNOWN: Final = frozenset({*_PLAIN, *UNUSED_KEYS, *_REFUSED, *_SECTIONS})


def find_key_problems(file: ConfigFile) -> Iterator[str]:
    """What is wrong with the file's keys, a sentence for each; DeepSpeed itself checks most values."""
    for key, value in file.items():
        if key not in _KNOWN:
            yield f"{key} is no key that DeepSpeed knows{suggest_key(key, _KNOWN)}"
        elif key in _REFUSED:
            yield f"{key} is not for this component: {_REFUSED[key]}"
        elif key in _SECTIONS and not isinstance(value, dict):
            yield f"{key} has to be an object, {{...}}, not {value!r}"
    yield from _of_optimizer(read_section(file, "optimizer"))
    kind = read_section(file, "scheduler").get("type", AUTO_VALUE)
    if kind not in (AUTO_VALUE, *FILE_SCHEDULERS):
        hint = suggest_key(str(kind), FILE_SCHEDULERS)
        yield f"scheduler.type {kind!r} is not one of {', '.join(FILE_SCHEDULERS)}{hint}"


def _unknown(where: str, value: Mapping[str, object], known: Iterable[str]) -> Iterator[str]:
    names = list(known)
    for key in value:
        if key not in names:
            yield f"{where}.{key} is no key that DeepSpeed knows{suggest_key(key, names)}"


def _of_optimizer(found: Mapping[str, object]) -> Iterator[str]:
    kind, params = found.get("type", AUTO_VALUE), found.get("params", {})
    name = str(kind).lower()
    known = ", ".join(cls.__name__ for cls in TORCH_OPTIMIZERS.values())
    if not isinstance(params, dict):
        yield f"optimizer.params has to be an object, {{...}}, not {params!r}"
    elif kind == AUTO_VALUE:
        yield from _unknown("optimizer.params", params, ("lr", "betas", "eps", "weight_decay", "momentum", *_ADAM))
    elif name not in TORCH_OPTIMIZERS:
        yield f"optimizer.type {kind!r} is not one of those that this component can save: {known}"
    else:
        own = list(inspect.signature(TORCH_OPTIMIZERS[name]).parameters)[1:]
        yield from _unknown("optimizer.params", params, own + list(_ADAM if "adam" in name else ()))
