"""How a rank is asked of a keeper, and how it is told of one: by the engine, or by what mpirun starts in its place."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from allranks.local.warm.bash_start import shell_variables
from allranks.local.warm.context import process_state
from allranks.local.warm.messages import ENDED, STARTED

PATIENCE = 5.0
"""Seconds for a keeper that has not answered: it may have been stopped."""
_END_SECONDS = 5.0  # in which a template tells how a rank ended, once it has
_TOLD_BYTES = 1 << 16  # of an answer
_OF_LOADER = "LD_"
"""Begin of the names of variables by which an interpreter's libraries are found, whoever has set them."""


class StartedRank(NamedTuple):
    """A forked rank: its process, a pidfd of it, and the socket on which its end will be told."""

    pid: int
    descriptor: int
    report: socket.socket


class RankEnd(NamedTuple):
    """How it ended: the status of ``os.wait4``, its peak memory in bytes, its /proc/PID/stat and /proc/PID/io."""

    status: int
    peak_bytes: int
    line: bytes
    io: bytes


def complete_question(question: Mapping[str, Any], environ: Mapping[str, str], cwd: str, umask: int) -> dict[str, Any]:
    """A question of ``WarmRanks.question`` with what a rank has from the process that starts it, this one.

    Args:
        question: what is known of the program.
        environ: the variables with which bash would be started.
        cwd: where.
        umask: with which.
    """
    spec = question["spec"]
    variables = shell_variables(environ, spec["interpreter"])
    stable = {*question["stable"]}
    chosen = {name: text for name, text in variables.items() if name in stable or name.startswith(_OF_LOADER)}
    request = {**question["request"], "env": variables, "cwd": cwd, "umask": umask, **process_state()}
    context = question["context"]
    return {"do": "fork", "spec": {**spec, "variables": chosen}, "request": request, "context": context}


def ask_for_rank(keeper: socket.socket, asked: Mapping[str, Any], files: Sequence[int]) -> StartedRank | str:
    """Ask and wait for the answer; the reason where there will be none.

    Args:
        keeper: a connection to it.
        asked: the whole question.
        files: its log first.

    Raises:
        OSError: there is no keeper any more; TimeoutError where it does not answer.
    """
    report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message = json.dumps(asked).encode()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(1 << 18, 2 * len(message)))
    try:
        with theirs:
            socket.send_fds(keeper, [message], [*files, theirs.fileno()])
        return receive_rank(report)
    except OSError:
        report.close()
        raise


def receive_rank(report: socket.socket) -> StartedRank | str:
    """Wait for the rank that was asked for; the reason where there will be none. Raises OSError, as TimeoutError."""
    report.settimeout(PATIENCE)
    message, files, _, _ = socket.recv_fds(report, _TOLD_BYTES, 1)
    (pid,) = STARTED.unpack(message[: STARTED.size]) if len(message) >= STARTED.size else (0,)
    if pid and files:
        return StartedRank(pid, files[0], report)
    for file in files:
        os.close(file)
    report.close()
    return message[STARTED.size :].decode(errors="replace") or "it has ended"


def receive_end(report: socket.socket) -> RankEnd | None:
    """How the rank ended; None where what it was forked from has ended, and the rank with it."""
    told = b""
    with report, suppress(OSError):
        report.settimeout(_END_SECONDS)
        told = report.recv(_TOLD_BYTES)
    if not told:
        return None
    status, peak, length = ENDED.unpack(told[: ENDED.size])
    return RankEnd(status, peak, told[ENDED.size : ENDED.size + length], told[ENDED.size + length :])
