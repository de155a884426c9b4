"""What one process of a step is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RankCommand:
    """What one process is started with; no rank without a distribution, and for a launcher that starts ranks itself.

    A parameter server is not essential: it is ended when the ranks that are have succeeded.
    """

    rank: int | None
    node: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path
    log: Path
    essential: bool = True
