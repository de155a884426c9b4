"""Starts templates, and asks them for ranks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from allranks.local import processes
from allranks.local.fingerprint import json_digest
from allranks.local.rank_process import LostTemplateError
from allranks.local.resources.usage import ProcessEnd, parse_counters
from allranks.local.warm import template as template_process
from allranks.local.warm.asking import receive_end
from allranks.local.warm.forkable import ROOM
from allranks.local.warm.looks import has_looked
from allranks.local.warm.messages import FORKED_ENGINE, FORKED_RANK, MOST_BYTES

_ROOM_BYTES = 100_000  # of a rank's variables; the kernel allows 128 KiB for one of them
_ARGUMENT_BYTES = 4096  # of the words of its command that are shown

_SEEN_BY_NOBODY = (
    *("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC_", "GLIBC_", "JEMALLOC", "MIMALLOC_", "ARROW_", "TBB_", "OPENSSL_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_", "DNNL_", "ONEDNN_"),
    *("TORCH", "PYTORCH_", "ATEN_", "KINETO_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "XLA_", "TF_", "HF_", "TRITON_"),
)
"""Begins of the names of variables that an interpreter looks at when it starts, or libraries in C when loaded."""

UNSAID = "it has ended"
"""The failure of a template that was killed before it could say one."""


@dataclass(frozen=True, slots=True)
class TemplateSpec:
    """What makes two templates the same.

    Attributes:
        interpreter: as it is started, with its ``flags``.
        installed: a digest of what is installed there.
        variables: those that ranks of several steps and runs have in common.
        modules: what is imported.
    """

    interpreter: str
    flags: tuple[str, ...]
    installed: str
    variables: Mapping[str, str]
    modules: tuple[str, ...]

    def suits(self, other: TemplateSpec, read: Collection[str]) -> bool:
        """Whether a template of this kind, whose imports have ``read`` these variables, may serve for the other one.

        Only variables may differ, at which neither the imports have looked, nor an interpreter or a library in C where
        nobody sees it.
        """
        if replace(self, variables={}) != replace(other, variables={}):
            return False
        mine, theirs = self.variables, other.variables
        differ = {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}
        return not any(has_looked(read, name) or name.startswith(_SEEN_BY_NOBODY) for name in differ)

    @property
    def key(self) -> str:
        """The same for equal ones."""
        return json_digest(asdict(self))

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> TemplateSpec:
        """The inverse of ``to_document``."""
        flags, modules = tuple(document["flags"]), tuple(document["modules"])
        return cls(document["interpreter"], flags, document["installed"], document["variables"], modules)


class TemplateProcess:
    """A template on its way: it imports, then it forks ranks until it is closed. It dies with this process.

    ``forked`` counts its ranks, ``engines`` the processes that do a run; ``refusal`` is why one was not forked, as far
    as it was heard, and ``read`` at which variables its imports have looked: see ``looks``.
    """

    def __init__(self, spec: TemplateSpec) -> None:
        self.spec = spec
        self.folder = Path(tempfile.mkdtemp(prefix="allranks-warm-"))
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        room = {ROOM: "-" * _ROOM_BYTES}
        argv = [spec.interpreter, *spec.flags, template_process.__file__, str(other.fileno()), " " * _ARGUMENT_BYTES]
        with other:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                env={**spec.variables, "TMPDIR": str(self.folder), "PWD": str(self.folder), **room},
                pass_fds=[other.fileno()],
                start_new_session=True,
                preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 this process has one thread
            )
        self.pid = self._process.pid
        self.failure = ""
        self.forked = self.engines = 0
        self.refusal = ""
        self.read: frozenset[str] = frozenset()
        self._is_ready = False
        self._control.send(json.dumps({"modules": spec.modules}).encode())

    @property
    def descriptor(self) -> int:
        """Readable when it is ready, or has failed."""
        return self._control.fileno()

    @property
    def is_ready(self) -> bool:
        """Whether it has imported all; ``failure`` says why it never will."""
        if not self._is_ready and not self.failure and select.select([self._control], [], [], 0)[0]:
            try:
                answer = json.loads(self._control.recv(MOST_BYTES) or b"{}")
            except OSError:
                answer = {}
            self._is_ready = "ready" in answer
            self.read = frozenset(answer.get("read", ()))
            self.failure = "" if self._is_ready else answer.get("failed", UNSAID)
        return self._is_ready and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    def hear(self) -> None:
        """Take note of what was forked, and why other things were not."""
        with contextlib.suppress(OSError):
            while self._is_ready and (told := self._control.recv(1 << 12, socket.MSG_DONTWAIT)):
                if told == FORKED_RANK:
                    self.forked += 1
                elif told == FORKED_ENGINE:
                    self.engines += 1
                else:
                    self.refusal = told.decode(errors="replace")

    def ask(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        """Ask for a rank or an engine, with the files that it gets; raises OSError where it has ended."""
        socket.send_fds(self._control, [json.dumps(request).encode()], files)

    @property
    def resident_bytes(self) -> int:
        """Its memory, which its ranks share as far as they do not write to it; 0 when it has ended."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0

    @property
    def has_ranks(self) -> bool:
        """Whether ranks or engines of it run."""
        return bool(processes.children_of(self.pid))

    def end(self) -> None:
        """End it, and with it its ranks; an engine goes on."""
        self._control.close()
        self._process.kill()
        self._process.wait()
        rmtree(self.folder, ignore_errors=True)


class ForkedRank:
    """A rank that was forked from a template; see ``RankProcess``."""

    def __init__(self, pid: int, descriptor: int, report: socket.socket) -> None:
        self.pid = pid
        self.descriptor = descriptor
        self._report = report

    def reap(self) -> tuple[int, ProcessEnd | None]:
        """See ``RankProcess``; the template has waited for it and ended its group."""
        os.close(self.descriptor)
        end = receive_end(self._report)
        if end is None:
            processes.kill_group(self.pid)
            raise LostTemplateError
        used = ProcessEnd(parse_counters(end.line, end.io), end.peak_bytes)
        return os.waitstatus_to_exitcode(end.status), used
