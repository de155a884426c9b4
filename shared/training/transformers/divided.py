"""Divide a model of transformers over all ranks by PyTorch's `fully_shard`; each rank reads the parts that it holds.

The Trainer would leave it to Accelerate, which divides nothing on CPUs and does not say so (1.15 takes DDP instead),
and transformers itself reads whole tensors in each process. It still does where the names in the files are not those
of the model, so that something has to be converted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedConfig, PreTrainedModel

from shared.distributed import Refusal, World
from shared.models.weight_files import WeightReader
from shared.training.fsdp.pieces import local_part, piece_of, pieces_of
from shared.training.torch.start import seed_generators


def divide_model(net: PreTrainedModel, world: World, dtype: torch.dtype) -> None:
    """Divide a model over the ranks, in place, layer by layer; `dtype` is what its layers compute in."""
    mesh = init_device_mesh(world.device.type, (world.world_size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = set(net._no_split_modules or ())  # noqa: SLF001  # what its authors say is a layer
    for part in [part for part in net.modules() if type(part).__name__ in layers]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)


def reshard_model(net: nn.Module) -> None:
    """Give up what ranks have of each other's parts: what no backward pass follows stays whole otherwise."""
    for part in net.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


class DividedModel(nn.Module):
    """A divided model that computes in mixed precision; the Trainer takes a model that is wrapped as it is."""

    def __init__(self, net: nn.Module, device_type: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self._device_type, self._dtype = net, device_type, dtype

    def forward(self, **inputs: Any) -> Any:
        """Give what the model gives."""
        with torch.autocast(self._device_type, self._dtype, enabled=self._dtype != torch.float32):
            return self.net(**inputs)


def make_empty_model(kind: Any, config: PreTrainedConfig, folder: Path) -> PreTrainedModel | None:
    """Make a model without memory; None if the folder's tensors are not the model's as they are."""
    try:
        with torch.device("meta"):
            net: PreTrainedModel = kind.from_config(config, trust_remote_code=False, dtype=torch.float32)
        reader = WeightReader(folder)
    except (RuntimeError, NotImplementedError, Refusal):
        return None  # some models compute with what they make, and what is wrong with the files is said by others
    sources = _sources(net, reader)
    body = f"{net.base_model_prefix}."
    state = net.state_dict()
    lost = [name for name in _kept_names(net) if name not in sources and name.startswith(body) and "pooler" not in name]
    other = [name for name, key in sources.items() if tuple(state[name].shape) != reader.shapes[key]]
    tied_twice = [name for name in net.all_tied_weights_keys if name in reader.shapes]
    return None if lost or other or tied_twice else net


def fill_divided_model(net: PreTrainedModel, folder: Path, seed: int, device: torch.device) -> None:
    """Give a divided model memory, and this rank's parts of the values in the folder; the rest is new, by the seed."""
    reader = WeightReader(folder)
    sources = _sources(net, reader)
    net.to_empty(device=device)
    net.tie_weights()
    for name, local, piece in pieces_of(net):
        if name in sources and not piece.empty:
            reader.read(sources[name], local, piece.offset)
    for name, buffer in net.named_buffers():
        if name in sources:
            reader.read(sources[name], buffer, (0,) * buffer.ndim)
    seed_generators(seed)
    _initialise_rest(net, sources)


def _initialise_rest(net: PreTrainedModel, sources: Mapping[str, str]) -> None:
    """Let transformers initialise what no file has: a new head, and buffers that are never saved."""
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if name in sources:
            tensor._is_hf_initialized = True  # type: ignore[attr-defined]  # noqa: SLF001  # its own mark
    missing = [name for name, _ in net.named_parameters() if name not in sources]
    with _whole_parameters(net, missing):
        net.initialize_weights()  # type: ignore[no-untyped-call]


@contextmanager
def _whole_parameters(net: PreTrainedModel, names: list[str]) -> Iterator[None]:
    """Have some parameters whole on the CPU for a while, and keep this rank's parts of what they are at the end."""
    places = [(net.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names]
    divided = [module._parameters[last] for module, last in places]  # noqa: SLF001  # setattr would be FSDP's
    wholes = [nn.Parameter(torch.empty(tuple(one.shape), dtype=one.dtype)) for one in divided if one is not None]
    for (module, last), whole in zip(places, wholes, strict=True):
        module._parameters[last] = whole  # noqa: SLF001
    yield
    for (module, last), whole, one in zip(places, wholes, divided, strict=True):
        module._parameters[last] = one  # noqa: SLF001
        local_part(one).copy_(whole.detach()[piece_of(one).slices])  # type: ignore[arg-type]  # fully_shard's


def _kept_names(net: PreTrainedModel) -> list[str]:
    """Names of what a folder holds of a model: parameters, the tied ones once, and buffers that are saved."""
    parameters = [name for name, _ in net.named_parameters()]
    persistent = net.state_dict().keys()
    return parameters + [name for name, _ in net.named_buffers() if name in persistent]


def _sources(net: PreTrainedModel, reader: WeightReader) -> dict[str, str]:
    """Each name of the model to the one in the files, which may be those of its body alone."""
    body = f"{net.base_model_prefix}."
    found = {}
    for name in _kept_names(net):
        for key in (name, name.removeprefix(body), f"{body}{name}"):
            if key in reader.shapes:
                found[name] = key
                break
    return found
