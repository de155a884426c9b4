"""The speed of a language model's training in the units of the field: tokens, operations, and MFU."""

from __future__ import annotations

import torch

from shared.distributed import World
from shared.models import DecoderSettings, ModelCard

_PEAKS = {
    "GB200": 2500e12,
    "B200": 2250e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "MI300X": 1307e12,
    "RTX PRO 6000": 504e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A100": 312e12,
    "A10": 125e12,
    "V100": 125e12,
    "T4": 65e12,
}
"""Dense operations per second in half precision by a part of the GPU's name, from the makers' data sheets; the first
that fits counts."""

TF32_SHARE = 0.5
"""What TF32, in which float32 is multiplied on GPUs, reaches of it."""

WITHOUT_TF32 = ("V100", "T4")
"""GPUs from before Ampere: they multiply float32 outside the cores that the peak is about."""


class TokenThroughput:
    """Further numbers of a language model's training, from its samples per second; none for another kind of model."""

    def __init__(self, card: ModelCard, precision: str, world: World) -> None:
        self._tokens = card.sequence_length if card.vocabulary else 0
        self._ranks = world.world_size
        self._peak = _peak(world.device, precision)
        self._flops = DecoderSettings(**card.settings).flops_per_token(self._tokens) if card.vocabulary else 0.0

    def __call__(self, samples_per_second: float) -> dict[str, float]:
        """Tokens per second of all ranks; operations of each, in 10^12 per second; MFU where the peak is known.

        Model FLOPs utilization (0 to 1) counts what the model needs, not what activation checkpointing does again.
        """
        if not self._tokens:
            return {}
        tokens = samples_per_second * self._tokens
        per_rank = tokens * self._flops / self._ranks
        numbers = {"tokens_per_second": tokens, "teraflops_per_rank": per_rank / 1e12}
        return numbers | ({"mfu": per_rank / self._peak} if self._peak else {})


def _peak(device: torch.device, precision: str) -> float | None:
    if device.type != "cuda" or precision == "fp64":
        return None
    name = torch.cuda.get_device_name(device)
    part = next((part for part in _PEAKS if part in name), None)
    if part is None or (precision == "fp32" and part in WITHOUT_TF32):
        return None
    return _PEAKS[part] * (TF32_SHARE if precision == "fp32" else 1.0)
