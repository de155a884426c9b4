"""What mpirun takes for ssh: runs the command for another host right here, under that host's name.

    python -I mpi_agent.py PREFIX HOST WORD…

PREFIX is where Open MPI is installed, which it names without quotes: a path with a space would be two.

Open MPI 5 looks at host names: under one name it counts a part of the other nodes' ranks as neighbours (5.0.11: 3 on
the first node and 2 on the second), and whatever splits by node, Horovod too, then hangs. Who is not root may give
itself a name in a namespace of users alone. In that everybody stays who they are: Open MPI's daemon refuses to run as
root, also as one that is root only there. Where no name can be had, as in a container with Docker's own limits, the
daemon is told that it runs under Slurm, from which it takes a name and not from the system: ranks have the machine's.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_NEW_NAMES, _NEW_USERS = 0x04000000, 0x10000000  # CLONE_NEWUTS and CLONE_NEWUSER of <linux/sched.h>
BORROWED = ("SLURM_JOBID", "SLURM_NODEID", "SLURMD_NODENAME", "ALLRANKS_NAMED")
"""Variables for the daemon alone; the last one is there where it was given the others."""
_IDENTITY = re.compile(r"""(?<=mca ess )["']?env["']?(?= )""")  # from where the daemon takes who it is
_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> NoReturn:
    """Take the name, or tell it the daemon, and become the command: a shell takes its words, as one does behind ssh."""
    from allranks.local.becoming import become, first_variables

    prefix, host, *words = arguments
    environ, command = first_variables(), " ".join(words).replace(prefix, shlex.quote(prefix))
    for kinds in (_NEW_NAMES, _NEW_USERS | _NEW_NAMES):
        if _could_be_named(host, kinds):
            _be_named(host, kinds)
            break
    else:
        if "SLURM_JOBID" not in environ:
            environ |= dict(zip(BORROWED, ("1", "0", host, "1"), strict=True))
            command = _IDENTITY.sub("slurm", command)
    become(["/bin/sh", "-c", command], environ)


def _could_be_named(host: str, kinds: int) -> bool:
    """Whether a child can: half of it done could not be taken back."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _be_named(host, kinds)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _be_named(host: str, kinds: int) -> None:
    """Have this host name, in namespaces of these kinds; raises OSError where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(kinds):
        raise OSError(ctypes.get_errno(), "unshare")
    if kinds & _NEW_USERS:  # user_namespaces(7): in this order
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    socket.sethostname(host)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[3]))  # where this allranks is, whatever lies in the folder
    main(sys.argv[1:])
