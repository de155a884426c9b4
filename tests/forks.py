"""Ranks that are forked from a process which has imported their framework already.

Importing costs a rank more than all that most tests ask of it: 3 s of processor for torch with its optimizers, 7 for
Lightning, 5 for TensorFlow. A rank that is forked is as real as one that is started: see tests/fork_server.py. What differs is
that all ranks of a pytest process have one hash seed, and that variables which frameworks read when they are imported
have to be as they are here; who sets others gets an interpreter of its own. Where the start itself is the point, as with
launchers and what is imported when, interpreters are started as ever.

Command lines of allranks are forked likewise: importing costs 0.35 s of processor, running a step of a shell 0.07 s.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar

from tests.fork_server import ENDED

ROOT = Path(__file__).resolve().parents[1]
TORCH = ("torch", "torch._dynamo", "safetensors.torch")  # making an optimizer imports _dynamo
MODULES = {
    "allranks": (
        *("allranks.cli.drill", "allranks.cli.env", "allranks.cli.lint", "allranks.cli.live", "allranks.cli.main"),
        *(
            "allranks.cli.run",
            "allranks.cli.runs",
            "allranks.cli.show",
            "allranks.local.dry",
            "allranks.local.gang_failure",
        ),
        *("allranks.local.kinds.command", "allranks.local.restarts", "allranks.planning"),
        *("importlib.metadata", "jinja2", "packaging.requirements", "rich.console"),
    ),
    "data": ("sklearn.datasets", "pyarrow.parquet", "pyarrow.csv", "tokenizers"),
    "torch": TORCH,
    "report": (*TORCH, "matplotlib.pyplot"),
    "deepspeed": (*TORCH, "deepspeed", "torch._inductor.compile_fx"),  # its engine imports Inductor
    "lightning": (*TORCH, "lightning.pytorch"),
    # The Trainer imports DeepSpeed and MLflow when it is made.
    "transformers": (
        *TORCH,
        "transformers.trainer",
        "transformers.modeling_utils",
        "accelerate",
        "deepspeed",
        "mlflow",
    ),
    "tensorflow": ("tensorflow", "keras", "safetensors.numpy"),
}
"""What is imported for the ranks of each framework, and for the command line."""

OF_COMPONENTS = {
    "check_cluster": "report",
    "evaluate": "report",
    "prepare_data": "data",
    "prepare_text": "data",
    "train_ddp": "torch",
    "train_deepspeed": "deepspeed",
    "train_fsdp": "torch",
    "train_lightning": "lightning",
    "train_tf_multiworker": "tensorflow",
    "train_tf_parameter_server": "tensorflow",
    "train_transformers": "transformers",
}

READ_ON_IMPORT = (
    "CUDA_",
    "DS_",
    "HF_",
    "KERAS_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "PYTHON",
    "TF_",
    "TORCH",
    "XLA_",
)
"""Begins of the names of variables that frameworks or the interpreter read when they start."""
AS_EVER = ("PYTHONPATH", "TF_CONFIG")
"""Variables of those begins that are read later, or are seen to."""
READ_BY_PYTHON = ("LANG", "LC_", "LD_", "PYTHON", "TZ")
"""Begins of the names of variables that Python reads when it starts."""
COMMAND_LINE = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The variables of the server of command lines."""


def framework_of(code: str) -> str | None:
    """The framework that a test's script asks for in words, if one that is forked for; None for a plain start."""
    component = re.search(r"/components/(\w+)/\1\.py", code)
    if component:
        return OF_COMPONENTS.get(component[1])
    named = re.findall(r"""init\(["'](\w+)["']""", code) + re.findall(r"^\s*import (\w+)", code, flags=re.MULTILINE)
    return next((name for name in ("deepspeed", "torch", "tensorflow") if name in named), None)


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a rank with these variables may be forked: those that are read on import are as in the servers."""
    return _read_on_import(environment) == _read_on_import(_server_environment())


def start_allranks(arguments: Sequence[str], environment: Mapping[str, str], cwd: Path) -> ForkedCommand:
    """Start a command line of `allranks` as a fork that behaves as `python -m allranks` does; see `needs_start`."""
    out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 they are closed with the output
    command = [str(ROOT / "allranks" / "__main__.py"), *arguments]
    return ForkedCommand(*ForkServer.of("allranks").fork(command, environment, cwd, out, err, cwd), out, err)


def needs_start(environment: Mapping[str, str]) -> bool:
    """Whether a variable that Python reads when it starts has another value than in the server of command lines."""
    names = {name for name in environment.keys() | COMMAND_LINE.keys() if name.startswith(READ_BY_PYTHON)}
    return any(environment.get(name) != COMMAND_LINE.get(name) for name in names)


def _read_on_import(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(READ_ON_IMPORT) and name not in AS_EVER
    }


def _server_environment() -> dict[str, str]:
    from tests.helpers import clean_environment

    # pyarrow's allocator would start a thread, which a fork loses, perhaps with a lock in its hands
    return clean_environment({"PYTHONPATH": None, "JE_ARROW_MALLOC_CONF": "background_thread:false"})


class ForkedProcess:
    """A forked rank, with what ``subprocess.Popen`` offers for it."""

    def __init__(self, pid: int, report: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None as long as it runs."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([f"forked rank {self.pid}"], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            told = os.read(self._report, ENDED.size)
            os.close(self._report)
            assert told, "the server of this rank has ended"
            status, seconds = ENDED.unpack(told)
            self.returncode = os.waitstatus_to_exitcode(status)
            ForkServer.seconds_used += seconds
        return self.returncode


class ForkedCommand(ForkedProcess):
    """A forked command line, whose output goes to files."""

    def __init__(self, pid: int, report: int, out: IO[bytes], err: IO[bytes]) -> None:
        super().__init__(pid, report)
        self._outputs = (out, err)

    def communicate(self) -> tuple[str, str]:
        """Wait for the end, and return the standard output and the standard error."""
        self.wait()
        out, err = (io.TextIOWrapper(file) for file in self._outputs if not file.seek(0))
        with out, err:
            return out.read(), err.read()


class ForkServer:
    """A process with imported frameworks, for as long as this one lives."""

    seconds_used = 0.0
    """Seconds of processor of all forked ranks that have ended."""
    _running: ClassVar[dict[str, ForkServer]] = {}

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        script = Path(__file__).with_name("fork_server.py")
        with other:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(other.fileno()), *modules],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    @classmethod
    def of(cls, framework: str) -> ForkServer:
        """The server of a framework, started when it is first asked for."""
        server = cls._running.get(framework)
        if server is None or server._process.poll() is not None:
            environment = COMMAND_LINE if framework == "allranks" else _server_environment()
            server = cls._running[framework] = cls(MODULES[framework], environment)
        return server

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]
    ) -> ForkedProcess:
        """Start a rank; the command is a script and its arguments."""
        return ForkedProcess(*self.fork(command, environment, cwd, out, err, Path(command[0]).resolve().parent))

    def fork(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        out: IO[bytes],
        err: IO[bytes],
        first_path: Path,
    ) -> tuple[int, int]:
        """Fork for a command; return the process's number and the pipe that tells of its end."""
        mine, theirs = os.pipe()
        request = {"command": list(command), "env": dict(environment), "cwd": str(cwd), "path": str(first_path)}
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [out.fileno(), err.fileno(), theirs])
        finally:
            os.close(theirs)
        told = os.read(mine, 4)
        assert told, f"no process was forked for {command}"
        return struct.unpack("=i", told)[0], mine

    def close(self) -> None:
        """End the process; ranks of it that still run go on."""
        self._socket.close()
        self._process.wait()
