"""Ends a rank that waits for ever for one that has gone.

A collective of gloo does not always return when its peer dies: of 700 pairs of processes of which one was killed
between two collectives, 3 survivors waited on (torch 2.13, Linux), until the collective's own time-out, which is
minutes. The control plane knows of the death at once; what is missing is somebody who acts upon it while the main
thread stands in native code.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

from shared.distributed.control import Control
from shared.distributed.errors import print_line

STUCK_SECONDS = 15.0
"""So long may the main thread stand still after another rank has gone; a collective that notices takes a second."""
_LOOK_SECONDS = 1.0
_STILL_SHARE = 0.05
"""Of one processor: what uses less of it stands still."""


class LostPeerWatch(threading.Thread):
    """Looks once a second whether the world has broken, and ends a process that then stands still.

    A rank whose main thread computes goes on until it meets the others. One that waits for a slow disk is ended like
    one that waits in a collective: the job has failed, and what it leaves is what a kill leaves at any moment.
    """

    def __init__(self, control: Control) -> None:
        super().__init__(name="allranks-lost-peers", daemon=True)
        self._control = control
        self._clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)

    def run(self) -> None:
        """Watch until the rank ends by itself."""
        still = used = 0.0
        while not self._control.is_ending.wait(_LOOK_SECONDS):
            news = self._control.bad_news()
            if news is None:
                continue
            used, before = time.clock_gettime(self._clock), used
            still = still + _LOOK_SECONDS if used - before < _STILL_SHARE * _LOOK_SECONDS else 0.0
            if still >= STUCK_SECONDS:
                self._end(news)

    def _end(self, news: str) -> None:
        print_line(
            f"distributed: {news} This rank has stood still for {STUCK_SECONDS:.0f} s since, waiting for what never "
            "comes, and is ended; where it stood:"
        )
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        os._exit(1)
