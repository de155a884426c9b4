"""Do all ranks have the same weights? A rank that has drifted apart would not show: rank 0's weights are saved."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from shared.distributed import UnsavedError, World


def check_same_weights(world: World, digests: list[tuple[str, str]], step: int) -> None:
    """Compare the weights that train over all ranks, bit by bit; every rank calls this.

    `digests` are name and digest of each, in the same order on every rank. A rank sends one digest of all; those of
    each follow where ranks differ.

    Raises:
        UnsavedError: naming the ranks that differ from most others, and the first weight that does.
    """
    total = hashlib.sha256("".join(digest for _, digest in digests).encode()).hexdigest()
    totals = world.collect(total, "weights") or []
    is_same = world.once(lambda: len(set(totals)) == 1, name="weights", scope="job", timeout=world.step_timeout)
    if not is_same:
        every = world.collect_in_rounds(digests, "digests of weights") or []
        world.once(lambda: _refuse(every, step), name="different weights", scope="job", timeout=world.step_timeout)


def _refuse(every: Sequence[Sequence[tuple[str, str]]], step: int) -> None:
    common = Counter(map(str, every)).most_common(1)[0][0]  # that of rank 0, where no more ranks have another one
    like = next(rank for rank, one in enumerate(every) if str(one) == common)
    unlike = [rank for rank, one in enumerate(every) if str(one) != common]
    pairs = zip_longest(every[like], every[unlike[0]], fillvalue=("nothing", "none"))
    (name, right), (_, wrong) = next(pair for pair in pairs if pair[0] != pair[1])
    raise UnsavedError(
        f"The weights of {'ranks' if len(unlike) > 1 else 'rank'} {', '.join(map(str, unlike))} are not those of rank "
        f"{like} after step {step}, first {name}: its digest is {wrong[:12]} on rank {unlike[0]}, {right[:12]} on rank "
        f"{like}. All ranks have to make the same steps: look for a learning rate, a condition or a change of weights "
        "that depends on the rank. No model was saved, and checkpoints within this epoch may have the same fault."
    )
