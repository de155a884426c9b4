"""Inputs that no process of a step can write to: mounted read-only, for those processes alone, where that is allowed.

Each process that the engine starts gets a mount namespace of its own, which those that it starts share, and which goes
with the last of them. That takes root with CAP_SYS_ADMIN, which containers seldom have; elsewhere the engine sees when
a step has ended that it wrote to an input.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS: Final = 0x20000  # <linux/sched.h>
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18  # <linux/mount.h>
_KEPT: Final = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
"""Of what a mount was: a second one has them not by itself. The kernel's flags have the same values."""


def lockable_inputs(inputs: Iterable[Path], written: Iterable[Path]) -> tuple[bytes, ...]:
    """Give those inputs in which none of the folders lies that a step writes to, as `lock_inputs` takes them."""
    places = [path.resolve() for path in written]
    found = {path.resolve() for path in inputs}
    return tuple(os.fsencode(path) for path in sorted(found) if not any(one.is_relative_to(path) for one in places))


def lock_inputs(paths: Sequence[bytes]) -> None:
    """Mount paths read-only for this process and its children, if it may; runs between fork and exec."""
    if not paths or _libc.unshare(_NEW_MOUNTS) or _libc.mount(b"none", b"/", None, _REC | _PRIVATE, None):
        return
    for path in paths:
        if _libc.mount(path, path, None, _BIND | _REC, None) == 0:
            kept = os.statvfs(path).f_flag & _KEPT
            _libc.mount(b"none", path, None, _BIND | _REMOUNT | _RDONLY | kept, None)


def locked_input_help(lines: Sequence[str], inputs: Iterable[Path]) -> str:
    """Say which input a step could not write to, if the end of its log does; else empty."""
    from allranks.local.plain_paths import plain_path  # what is forked loads this file without allranks

    refused = [line for line in lines if os.strerror(errno.EROFS) in line]
    ways = {path: {str(path), plain_path(path)} for path in inputs}
    wanted = next((path for path in ways if any(way in line for line in refused for way in ways[path])), None)
    if wanted is None:
        return ""
    return (
        f"it wrote to its input {wanted}, which is read-only, as on Azure ML: write to an output, or set"
        " mode: download for a copy of its own"
    )
