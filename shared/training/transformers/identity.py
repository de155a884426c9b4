"""What a model's folder holds, in a few letters: a training goes on wherever the folder lies now."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from shared.models.weight_files import weight_paths
from shared.settings.network import BaseModelSettings
from shared.storage import JSON_BYTES, RandomReads, read_bytes
from shared.training.transformers.folder import find_config

_PASSING: Final = ("_name_or_path", "transformers_version")
"""Entries of a configuration that say who has written it, and where."""
_BEGIN_BYTES: Final = 2**16
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 256


def base_identity(base: BaseModelSettings) -> dict[str, str | None]:
    """Say which model a training begins with, by input: its type and a hash, None where none is given.

    The hash is over the configuration, the sizes of the weights' files, and samples of them, 80 KB of each: to read all
    would take minutes at each start. Models that differ in a few small tensors alone may be taken for the same.

    Raises:
        Refusal: if there is no configuration, or there are no weights.
    """
    folder, config = base.base_model, base.base_config
    return {
        "base_model": None if folder is None else _short_hash(folder, [_sample(path) for path in weight_paths(folder)]),
        "base_config": None if config is None else _short_hash(config, []),
    }


def _short_hash(place: Path, samples: list[bytes]) -> str:
    config: dict[str, Any] = json.loads(read_bytes(find_config(place), JSON_BYTES))
    kept = {name: value for name, value in config.items() if name not in _PASSING}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for sample in samples:
        digest.update(hashlib.sha256(sample).digest())
    return f"{config.get('model_type')} {digest.hexdigest()[:16]}"


def _sample(path: Path) -> bytes:
    """Read a file's beginning, where the names and shapes are, and some of its values; with its size."""
    file = RandomReads(path)
    try:
        places = [(0, _BEGIN_BYTES), *((file.size * n // _SAMPLES, _SAMPLE_BYTES) for n in range(_SAMPLES))]
        samples = [bytes(file.read(place, min(length, file.size - place))) for place, length in places]
    finally:
        file.close()
    return b"".join([str(file.size).encode(), *samples])
