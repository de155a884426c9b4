"""SIGTERM of a rank that has been told already: the others still need it until all have left their world.

Where a node is taken away, each rank is sent SIGTERM, some of them when all have long agreed to stop. One that died of
it then, with its model still to be saved or the others still closing, would end them with an error.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def heed_no_more() -> None:
    """Let SIGTERM do nothing from now on, until `heeding_afterwards` ends; in the main thread."""
    signal.signal(signal.SIGTERM, _heed_not)


@contextmanager
def heeding_afterwards() -> Iterator[None]:
    """Give SIGTERM at the end the handler of the beginning, where `heed_no_more` took it away and nobody has since."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _heed_not:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: not of Python


def _heed_not(*_: object) -> None:
    """Do nothing; SIG_IGN would be passed on to the programs that this process starts."""
