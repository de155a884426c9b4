"""Do all ranks end with the same weights? Compared before they are saved: a rank that trained alone would not show."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from shared.distributed import World


def check_same_weights(world: World, weights: Iterable[Any]) -> str:
    """Compare the weights that train over all ranks, bit by bit, and return their sha256; every rank calls this.

    `weights` are NumPy arrays, or what NumPy can read in place, in the same order on every rank.

    Raises:
        RuntimeError: naming the ranks whose weights differ from those of rank 0.
    """
    total = hashlib.sha256()
    for weight in weights:
        total.update(np.ascontiguousarray(weight).tobytes())
    digests = world.collect(total.hexdigest(), "weights") or []
    found = [str(rank) for rank, digest in enumerate(digests) if digest != digests[0]]
    different = world.once(lambda: found, name="different weights", scope="job", timeout=world.step_timeout)
    if different:
        raise RuntimeError(
            f"The weights of rank {', '.join(different)} are not those of rank 0: the ranks did not train together."
        )
    return total.hexdigest()
