"""SIGINT, SIGTERM and SIGHUP as something that a waiting loop can wait for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught_signals(note: Callable[[int], None]) -> Iterator[int]:
    """Within the block call ``note`` with the number of each such signal; the descriptor becomes readable then.

    In another thread than the first, where Python lets nobody catch them, they stay what they are.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    if threading.current_thread() is not threading.main_thread():  # there alone they can be caught
        with os.fdopen(reader, "rb"), os.fdopen(writer, "wb"):
            yield reader
        return
    before = {number: signal.signal(number, lambda number, _frame: note(number)) for number in _CAUGHT}
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(previous)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
