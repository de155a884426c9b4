"""SIGINT, SIGTERM and SIGHUP as something that a waiting loop can wait for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _heed_not(*_: object) -> None:
    """Do nothing; SIG_IGN would be passed on to the programs that this process starts."""


@contextmanager
def caught_signals(note: Callable[[int], None]) -> Iterator[int]:
    """Within the block call ``note`` with the number of each such signal; the descriptor becomes readable then.

    One that this process was started to ignore, as SIGHUP under nohup or SIGINT behind ``&`` in a script, is not noted;
    programs that are started meanwhile do not ignore it. In another thread than the first, where Python lets nobody
    catch them, they stay what they are.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    if threading.current_thread() is not threading.main_thread():  # there alone they can be caught
        with os.fdopen(reader, "rb"), os.fdopen(writer, "wb"):
            yield reader
        return
    before = {number: signal.getsignal(number) for number in _CAUGHT}
    for number, handler in before.items():
        signal.signal(number, _heed_not if handler is signal.SIG_IGN else lambda number, _frame: note(number))
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
