"""What mpirun starts in a rank's place: it has the rank forked by this user's keeper, and stands for it to its end.

mpirun tells a rank of its world by variables, signals it and waits for it. So this hands its variables to the rank,
passes signals on, and ends as the rank does. When this is killed the rank is, too: its template sees that nobody waits.
Where no rank is forked, for whatever reason, this becomes the command itself.

    python -I mpi_rank.py QUESTION PLACE USES /bin/bash -c COMMAND

QUESTION is a file with what ``WarmRanks.question`` found; in the folders PLACE and USES each rank has a file: with its
id while it is forked, or LOST when its template has ended, and with what it has used. See ``resources/notes.py``.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

STAND_IN = "allranks-rank"
"""The name of its process, which only waits; 15 bytes at most."""
LOST = "lost"
"""What it notes when the rank's template has ended."""
_FORWARDED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, signal.SIGXCPU),
)
_ENTERED = ({"user", "uts"}, {"mnt", "uts"})
"""Namespaces that mpirun's ranks have: the host name of a node, which takes one of users where nobody is root, and
inputs that cannot be written to, where somebody is."""
_RIGHTS = (18, 21)  # CAP_SYS_CHROOT and CAP_SYS_ADMIN of <linux/capability.h>, for which setns(2) asks


def main(arguments: Sequence[str]) -> NoReturn:
    """Stand for a rank, or become it."""
    from allranks.local.becoming import become, first_variables

    question, place, uses, *command = arguments
    environ = first_variables()
    rank = None
    with suppress(OSError, ValueError, KeyError, ImportError):
        rank = _fork(json.loads(Path(question).read_text(encoding="utf-8")), environ)
    if rank is None:
        become(command, environ)
    name = environ["OMPI_COMM_WORLD_RANK"]
    note = Path(place, name)
    with suppress(OSError):  # the disk is full: that is the rank's own business
        note.write_text(str(rank.pid))
    _show_name()
    _pass_signals_on(rank)
    end = _end_of(rank.report)
    if end is None:
        with suppress(OSError):
            signal.pidfd_send_signal(rank.descriptor, signal.SIGKILL)
        with suppress(OSError):
            note.write_text(LOST)
        os._exit(128 + signal.SIGKILL)
    with suppress(OSError):
        note.unlink()
        Path(uses, name).write_bytes(end.line.rstrip(b"\n") + b"\n" + end.io)
    _end_like(os.waitstatus_to_exitcode(end.status))


def _fork(question: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    """The ``StartedRank``; None where there is no keeper, or it forks none."""
    from allranks.local.warm.address import connect_keeper
    from allranks.local.warm.asking import ask_for_rank, complete_question
    from allranks.local.warm.bash_start import find_program, is_plain_bash

    found = find_program(question["request"]["argv"][0], environ)
    if not is_plain_bash(environ) or str(found) != question["spec"]["interpreter"]:
        return None
    keeper = connect_keeper()
    if keeper is None:
        return None
    umask = os.umask(0o77)
    os.umask(umask)
    asked = complete_question(question, environ, os.getcwd(), umask)  # noqa: PTH109
    asked["context"], entered = _own_context(question["context"])
    with keeper:
        rank = ask_for_rank(keeper, asked, [1, *entered])
    return None if isinstance(rank, str) else rank


def _own_context(engine: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Whether this is where the engine is, and the namespaces of its own that a rank has to enter."""
    from allranks.local.warm.context import NAMESPACES, process_context

    own = {**engine, **process_context(with_memory=False)}
    places = zip(NAMESPACES, own["namespaces"], engine["namespaces"], strict=True)
    differ = {name for name, mine, other in places if mine != other}
    is_outside = any(differ <= kinds for kinds in _ENTERED)
    if "user" in differ:  # its own user has all rights in it, and but for root loses them when a program begins
        is_outside &= own["status"]["Uid"] == engine["status"]["Uid"]
        own["status"] = engine["status"]
    else:
        is_outside &= all(int(own["status"]["CapEff"][0], 16) >> right & 1 for right in _RIGHTS)
    if not is_outside:
        return own, []
    entered = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in sorted(differ, key="user".__ne__)]
    return {**own, "namespaces": engine["namespaces"]}, entered


def _show_name() -> None:
    """By which who looks for the programs of ranks passes over this one."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(STAND_IN)


def _pass_signals_on(rank: Any) -> None:
    """Until the rank has ended, or what it was forked from."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(rank.report, select.POLLIN)
    while True:
        ready = {file for file, _ in poll.poll()}
        if reader in ready:
            for one in os.read(reader, 4096):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank.descriptor, one)
        if rank.report.fileno() in ready:
            return


def _end_of(report: Any) -> Any:
    from allranks.local.warm.asking import receive_end

    return receive_end(report)


def _end_like(code: int) -> NoReturn:
    """End with this exit code, or minus the number of the signal that has killed the rank."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):  # of SIGKILL there is nothing to be set
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # where this allranks is, whatever lies in the folder
    main(sys.argv[1:])
