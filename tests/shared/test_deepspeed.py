"""The configuration of DeepSpeed: the file, the inputs and the machine brought together, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from shared.distributed import Refusal, World
from shared.settings.command_line import read_settings
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.schedule import LearningSchedule
from shared.training.deepspeed.config_file import _plan, _read

GUIDE: dict[str, Any] = {
    "train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8}},
    "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16},
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "allgather_partitions": True,
        "allgather_bucket_size": 2e8,
        "reduce_scatter": True,
        "reduce_bucket_size": 2e8,
        "overlap_comm": True,
        "contiguous_gradients": True,
    },
}
"""The example of the guide "Distributed GPU training" (2024), as it stands there."""


def arguments(**options: object) -> DeepSpeedSettings:
    """The trainer's, with underscores."""
    given = {"data": "d", "model": "m", "checkpoints": "c", "metrics": "e", **options}
    words = [text for n, v in given.items() for text in ("--" + n.replace("_", "-"), str(v))]
    return read_settings(DeepSpeedSettings, words=words)


class Alone(World):
    """One rank without a control plane, as far as the configuration needs it."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def configured(file: dict[str, Any], **options: object) -> tuple[Any, list[str]]:
    from shared.training.deepspeed.configuration import make_configuration

    args, world = arguments(**options), Alone()
    return make_configuration(args, file, _plan(args.batch, file, 2), world), world.said


def refused(file: dict[str, Any], **options: object) -> list[str]:
    with pytest.raises(Refusal) as raised:
        configured(file, **options)
    return str(raised.value).splitlines()[1:]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[1]", "has to hold a JSON object"),
    ],
)
def test_a_file_that_is_no_object_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(Refusal, match=said):
        _read(path)
    with pytest.raises(Refusal, match="cannot be read"):
        _read(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("file", "options", "steps"),
    [
        ({}, {}, 1),
        ({}, {"accumulation_steps": 4}, 4),
        (GUIDE, {}, 1),
        ({"train_batch_size": "auto", "gradient_accumulation_steps": 8}, {}, 8),
        ({"train_micro_batch_size_per_gpu": 4}, {}, 8),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}, {"accumulation_steps": 2}, 8),
    ],
)
def test_batch_sizes_that_agree(file: dict[str, Any], options: dict[str, object], steps: int) -> None:
    assert _plan(arguments(**options).batch, file, 2) == BatchPlan(64, 2, steps)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (
            {"train_batch_size": 32},
            "train_batch_size is 32 in the configuration file, but the component's batch_size is 64",
        ),
        (
            {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4},
            "train_micro_batch_size_per_gpu 4 x 4 accumulation steps x 2 ranks = 32, which is not the batch_size 64",
        ),
        (
            {"train_micro_batch_size_per_gpu": 5},
            "train_micro_batch_size_per_gpu 5 x any whole number of accumulation steps x 2 ranks is not the batch_size 64",
        ),
        ({"gradient_accumulation_steps": 5}, "does not divide over 2 ranks x 5 accumulation steps = 10"),
        ({"train_batch_size": "64", "gradient_accumulation_steps": 0}, "train_batch_size '64', gradient_accumulation"),
    ],
)
def test_batch_sizes_that_contradict_each_other(file: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal) as raised:
        _plan(arguments().batch, file, 2)
    assert said in str(raised.value)


def test_all_unknown_keys_are_named_at_once_with_what_was_meant() -> None:
    file = {
        "train_micro_batch": 4,
        "optimizer": {"type": "AdamW", "params": {"lrr": 1}},
        "scheduler": {"type": "WarmupRL"},
        "autotuning": {"enabled": True},
        "bf16": True,
    }
    assert refused(file) == [
        "  train_micro_batch is no key that DeepSpeed knows (did you mean train_micro_batch_size_per_gpu?).",
        "  autotuning is not for this component: compare short runs with other values of zero_stage and accumulation_steps.",
        "  bf16 has to be an object, {...}, not True.",
        "  optimizer.params.lrr is no key that DeepSpeed knows (did you mean lr?).",
        "  scheduler.type 'WarmupRL' is not one of WarmupLR, WarmupDecayLR, WarmupCosineLR (did you mean WarmupLR?).",
    ]


@pytest.mark.parametrize(
    ("file", "options", "said"),
    [
        ({}, {"offload": "optimizer", "zero_stage": 0}, "offload optimizer needs zero_stage 1, 2 or 3, and it is 0"),
        ({}, {"offload": "all"}, "offload all needs zero_stage 3, and it is 2"),
        ({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, {}, "needs zero_stage 1, 2 or 3"),
        ({"zero_optimization": {"zero_hpz_partition_size": 2}}, {}, "checkpoints do not know it"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, {}, "fp16 and bf16 are both enabled"),
        ({"optimizer": {"type": "Lamb"}}, {}, "optimizer.type 'Lamb' is not one of those that this component can save"),
        ({"tensor_parallel": {"autotp_size": 2}}, {}, "tensor_parallel is not for this component: model parallelism"),
        ({"amp": {}}, {}, "amp is no key that DeepSpeed knows"),
        ({}, {"precision": "fp16"}, "fp16 cannot be computed on this machine, which has no GPU"),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
            {},
            "device nvme is not supported",
        ),
    ],
)
def test_what_cannot_be_is_refused(file: dict[str, Any], options: dict[str, object], said: str) -> None:
    assert said in refused(file, **options)[0]


def test_the_guides_example_is_refused_on_a_machine_without_a_gpu_or_its_fp16_replaced() -> None:
    assert refused(GUIDE) == [
        "  fp16 cannot be computed on this machine, which has no GPU (on_unsupported=replace would take fp32)."
    ]
    config, said = configured(GUIDE, on_unsupported="replace")
    assert said[1] == "WARNING: fp16 cannot be computed on this machine, which has no GPU; replaced by fp32"
    assert "learning_rate 0.001 (the input says 0.006)" in said[0]
    assert "offload optimizer (the input says none)" in said[0]
    document = config.document(parameters=1000)
    given = GUIDE["zero_optimization"]
    assert document["zero_optimization"] == {
        **given, "offload_optimizer": {"device": "cpu", "pin_memory": False}
    }  # fmt: skip
    assert document["fp16"] == {"enabled": False, "loss_scale": 0, "initial_scale_power": 16}
    params = document["optimizer"]["params"]
    assert (params["lr"], params["betas"], params["eps"], params["weight_decay"]) == (0.001, [0.9, 0.999], 1e-8, 0.0)
    assert params["torch_adam"]
    assert (document["train_batch_size"], document["train_micro_batch_size_per_gpu"]) == (64, 32)


@pytest.mark.parametrize("zero", [{"stage": 7}, {"overlap_com": True}])
def test_deepspeed_itself_refuses_unknown_values(zero: dict[str, Any]) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    config, _ = configured({"zero_optimization": zero})
    with pytest.raises(ValueError, match=next(iter(zero))):
        DeepSpeedConfig(config.document(1000))


def test_nvme_is_replaced_by_memory() -> None:
    file = {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local"}}}
    config, said = configured(file, on_unsupported="replace")
    assert said[-1].endswith("replaced by device cpu")
    zero = config.document(10**9)["zero_optimization"]
    assert zero["offload_param"] == {"device": "cpu", "pin_memory": False}
    assert zero["stage3_max_live_parameters"] == 125_000_000


def test_auto_is_what_the_inputs_say() -> None:
    file = {
        "optimizer": {"type": "auto", "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"}},
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto", "prefetch_bucket_size": 5},
    }
    options = {"precision": "bf16", "zero_stage": 3, "clip_norm": 0.5, "momentum": 0.8, "weight_decay": 0.2}
    config, said = configured(file, **options)
    assert said == []
    document = config.document(10**7)
    assert document["bf16"] == {"enabled": True}
    assert document["gradient_clipping"] == 0.5
    params = document["optimizer"]["params"]
    assert (params["lr"], params["betas"], params["weight_decay"]) == (0.006, [0.8, 0.999], 0.2)
    assert document["zero_optimization"]["stage"] == 3
    assert document["zero_optimization"]["reduce_bucket_size"] == 1_250_000
    assert document["zero_optimization"]["stage3_prefetch_bucket_size"] == 5


def test_the_older_name_of_bf16_means_bf16() -> None:
    config, _ = configured({"bfloat16": {"enabled": True}})
    assert config.document(1000)["bf16"] == {"enabled": True}
    assert config.settings.precision.precision == "bf16"


def test_deepspeed_itself_takes_what_is_made() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    for file, options in (({}, {}), ({}, {"zero_stage": 3, "offload": "all"}), ({}, {"optimizer": "sgd"}), (GUIDE, {})):
        args = arguments(on_unsupported="replace", **options)
        config, _ = configured(file, on_unsupported="replace", **options)
        made = DeepSpeedConfig(replace(config, plan=BatchPlan(64, 1, 2)).document(10**8))
        assert made.train_batch_size == args.batch.batch_size
        assert made.gradient_accumulation_steps == 2
        assert made.zero_optimization_stage == config.stage


def test_the_files_schedule_is_deepspeeds_own() -> None:
    from deepspeed.runtime.lr_schedules import WarmupDecayLR

    from shared.training.deepspeed.schedule import make_schedule

    params = {"warmup_num_steps": 5, "warmup_max_lr": "auto", "total_num_steps": "auto", "warmup_type": "linear"}
    rate, usual = arguments().optimizer.learning_rate, arguments().schedule
    found = make_schedule(20, rate, usual, {"scheduler": {"type": "WarmupDecayLR", "params": params}})
    optimizer = torch.optim.SGD([torch.zeros(1)], 0.006)
    theirs = WarmupDecayLR(optimizer, 20, warmup_num_steps=5, warmup_max_lr=0.006, warmup_type="linear")
    expected = []
    for _ in range(20):
        expected.append(optimizer.param_groups[0]["lr"])
        theirs.step()
    assert [found(step) for step in range(20)] == expected
    assert found(3) == expected[3], "in any order"
    assert make_schedule(20, rate, usual, {}) == LearningSchedule.for_steps(20, rate, usual)
