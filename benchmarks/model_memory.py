"""Memory of each rank while a model is loaded from a Hugging Face folder, and while it is saved as one.

    python benchmarks/model_memory.py

A Llama of 103 million parameters (411 MB in float32, five files) is divided among 2 and 4 ranks, by train_fsdp's,
train_transformers' and train_deepspeed's (ZeRO 3) own functions. Reported is, for the rank where it is most, how far
the resident size rises above what the rank holds in the end: the peak is reset through /proc/self/clear_refs, and a
model of 34 thousand parameters has gone the same way before, so that what torch itself needs is there already.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory import GIVE_BACK, ROOT, prepare
from side_by_side import keep

RANKS = (2, 4)
KINDS = ("train_fsdp", "train_transformers", "train_deepspeed")
LARGE = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
SMALL = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2}
LIMIT = 0.1
"""Above what a rank holds, at most this part of it."""


def main() -> None:
    """Measure and keep; started by torchrun with a kind and folders, be one of the ranks."""
    if len(sys.argv) > 1:
        measure_rank(sys.argv[1], *map(Path, sys.argv[2:]))
        return
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), prepare(Path(name))
        for size, base in ((LARGE, folder / "large"), (SMALL, folder / "small")):
            call(["-c", MAKE, json.dumps(size), str(base)], folder)
        for kind in KINDS:
            table += [measure_kind(kind, ranks, data, folder) for ranks in RANKS]
    keep("model_memory", [], table=table)


MAKE = """
import json, sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(**json.loads(sys.argv[1]), vocab_size=257, max_position_embeddings=64)
LlamaForCausalLM(config).save_pretrained(sys.argv[2], max_shard_size="100MB")
"""


def measure_kind(kind: str, ranks: int, data: Path, folder: Path) -> dict[str, object]:
    """What the ranks tell, in MiB, of the one that has the highest."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), __file__, kind]
    told = call([*launch, str(data), str(folder / "small"), str(folder / "large"), str(folder)], folder)
    found = [json.loads(line) for line in re.findall(r"MEMORY (\{.*?\})", told)]
    assert len(found) == ranks, told[-3000:]
    row = {name: round(max(one[name] for one in found), 1) for name in found[0]}
    for what in ("loading", "saving"):
        row[f"{what}_share"] = round(max(max(one[what], 0) / one["held"] for one in found), 3)
        assert row[f"{what}_share"] <= LIMIT, (kind, ranks, found)
    return {"kind": kind, "ranks": ranks, **row}


def call(words: list[str], folder: Path) -> str:
    """Run Python and give what it printed."""
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **GIVE_BACK}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def measure_rank(kind: str, data: Path, small: Path, large: Path, folder: Path) -> None:
    """Load and save the small model, then the large one, and say how far memory rose above what is held."""
    from shared.data import Dataset
    from shared.distributed import init

    with init("deepspeed" if kind == "train_deepspeed" else "torch") as world:
        for base in (small, large):
            before = reset_peak()
            save = {"train_fsdp": load_fsdp, "train_transformers": load_transformers, "train_deepspeed": load_zero}[
                kind
            ](base, Dataset.open(data), world, folder / f"saved-{world.world_size}")
            peak = memory("VmHWM")
            held = reset_peak()
            save()
            told = {"held": held - before, "loading": peak - held, "saving": memory("VmHWM") - held}
            world.barrier("measured")
        sys.stdout.write(f"MEMORY {json.dumps(told)}\n")  # in one piece, where two ranks write
        sys.stdout.flush()


def memory(entry: str) -> float:
    """An entry of this process's status, in MiB."""
    found = re.search(rf"{entry}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def reset_peak() -> float:
    """Begin a new peak; what is resident now, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def load_fsdp(base: Path, data: Any, world: Any, out: Path) -> Callable[[], None]:
    """As train_fsdp does."""
    from shared.settings.running import SavingSettings
    from shared.training.fsdp.model import owned_parts
    from shared.training.torch.saved_decoder import save_divided_decoder

    module, card = divided_decoder(base, data, world)
    saving = SavingSettings(max_shard_gb=0.1)
    dtype = next(module.parameters()).dtype
    return lambda: save_divided_decoder(out, owned_parts(module), card, saving, dtype, data, world)


def divided_decoder(base: Path, data: Any, world: Any) -> tuple[Any, Any]:
    """A model of train_fsdp, filled, and its card."""
    import torch
    from torch.distributed.fsdp import fully_shard

    from shared.settings.network import DecoderSizes, sizes_of_base
    from shared.training.fsdp.layout import RankLayout
    from shared.training.fsdp.mesh import DATA, make_mesh
    from shared.training.fsdp.model import make_stage, materialise_stage

    mesh = make_mesh(RankLayout(world.world_size), world)
    module, card = make_stage(sizes_of_base(DecoderSizes(base_model=base)), data, mesh, torch.float32)
    for part in (*module.blocks.values(), module):
        fully_shard(part, mesh=mesh.devices[DATA])
    materialise_stage(module, 0, world, base)
    return module, card


def load_transformers(base: Path, data: Any, world: Any, out: Path) -> Callable[[], None]:
    """As train_transformers does with sharding fsdp."""
    from shared.settings.running import SavingSettings
    from shared.training.transformers.saving import divided_parts, save_divided_transformer

    net, saving = divided_transformer(base, world), SavingSettings(max_shard_gb=0.1)
    return lambda: save_divided_transformer(out, net, divided_parts(net), saving, data, world)


def divided_transformer(base: Path, world: Any) -> Any:
    """A model of train_transformers, filled; but for the trial of a few tokens."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from shared.training.transformers.divided import divide_model, fill_divided_model, make_empty_model

    net = make_empty_model(AutoModelForCausalLM, AutoConfig.from_pretrained(base), base)
    assert net is not None
    divide_model(net, world, torch.float32)
    fill_divided_model(net, base, 0, world.device)
    return net


def load_zero(base: Path, data: Any, world: Any, out: Path) -> Callable[[], None]:
    """As train_deepspeed does in stage 3, with SGD, which keeps nothing but the weights and what it adds to them."""
    from shared.settings.command_line import read_settings
    from shared.settings.deepspeed import DeepSpeedSettings
    from shared.settings.network import sizes_of_base
    from shared.training.deepspeed import plan_batches
    from shared.training.deepspeed.configuration import make_configuration
    from shared.training.deepspeed.engine import make_task_model, start_engine
    from shared.training.deepspeed.saving import save_trained_model

    words = ["--data", "d", "--model", str(out), "--checkpoints", "c", "--metrics", "m", "--zero-stage", "3"]
    words += ["--base-model", str(base), "--max-shard-gb", "0.1", "--batch-size", "8", "--optimizer", "sgd"]
    settings = read_settings(DeepSpeedSettings, words=words)
    settings = replace(settings, decoder=sizes_of_base(settings.decoder))
    config = make_configuration(settings, {}, plan_batches(settings.batch, {}), world)
    module, card = make_task_model(settings, data, world, config.build_device(world.device))
    engine = start_engine(module, config, world.device)
    return lambda: save_trained_model(engine, card, settings, data, world)


if __name__ == "__main__":
    main()
