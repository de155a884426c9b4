"""The terminal's own ``^C`` for Ctrl-C, which would be printed into what is drawn there, is kept away meanwhile."""

from __future__ import annotations

import contextlib
import os
import termios

_LOCAL_MODES = 3  # of what tcgetattr returns
_SHOW_CURSOR = b"\x1b[?25h"


class ControlEcho:
    """Switches ECHOCTL of a terminal off until ``restore``; does nothing where there is none, or it is off already.

    Only this one mode is touched, and only from the foreground: whoever changes another keeps it, and a process in the
    background would be stopped (SIGTTOU).
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._path = ""
        with contextlib.suppress(OSError):
            self._path = os.ttyname(descriptor)
        self._is_off = _switch(descriptor, is_on=False)

    def restore(self) -> None:
        """Put the mode back as it was."""
        if self._is_off:
            _switch(self._descriptor, is_on=True)
            self._is_off = False

    def restore_after_kill(self) -> None:
        """Put it back, and the cursor too, from a process that has outlived the one that drew."""
        if not self._path:
            return
        with contextlib.suppress(OSError):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            self.restore()
            os.write(self._descriptor, _SHOW_CURSOR)


def _switch(descriptor: int, *, is_on: bool) -> bool:
    """Whether the mode was another, and could be changed."""
    try:
        modes = termios.tcgetattr(descriptor)
        if bool(modes[_LOCAL_MODES] & termios.ECHOCTL) == is_on or _is_in_background(descriptor):
            return False
        modes[_LOCAL_MODES] ^= termios.ECHOCTL
        termios.tcsetattr(descriptor, termios.TCSANOW, modes)
    except (OSError, termios.error):
        return False
    return True


def _is_in_background(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # it is not the terminal of our session, which stops nobody
        return False
