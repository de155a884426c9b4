"""Starts real ranks: real processes with the variables that Azure ML sets, on free ports."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.forks import ForkedProcess, ForkServer, can_fork, framework_of
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]

LAUNCHER_PREFIXES = (
    "ALLRANKS_",
    "AZUREML_",
    "AZ_BATCH",
    "FLUX_",
    "GROUP_",
    "HOROVOD_",
    "LOCAL_",
    "MASTER_",
    "MPI_",
    "MV2_",
    "MVP_",
    "OMPI_",
    "PALS_",
    "PMI",
    "PRTE_",
    "SLURM_",
    "SM_",
    "TORCHELASTIC_",
)
LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "NODE_RANK", "TF_CONFIG", "GLOO_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class RankResult:
    """How one rank ended, and what it printed. ``returncode`` is negative for a signal, as with subprocess."""

    returncode: int
    stdout: str
    stderr: str
    rank: int


@dataclass(frozen=True, slots=True)
class RunningRank:
    """A rank that was started; its output goes to files, so that no pipe fills up."""

    rank: int
    process: subprocess.Popen[bytes] | ForkedProcess
    folder: Path

    @property
    def stdout(self) -> str:
        return (self.folder / f"out_{self.rank}.txt").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return (self.folder / f"err_{self.rank}.txt").read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until the rank has printed the text on standard output."""
        wait_for(lambda: text in self.stdout)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)


def run_ranks(
    code: str,
    nodes: int = 1,
    processes: int = 2,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | str | None = None,
) -> list[RankResult]:
    """Run the Python source as every rank of an Azure ML PyTorch job, all nodes here; results in rank order.

    Args:
        code: the source of the script; it is dedented.
        nodes: number of emulated nodes.
        processes: processes per node.
        env: variables to set on all ranks; None as a value takes one away.
        cwd: the working folder of all ranks; None is a new temporary one.
    """
    with started_ranks(code, nodes, processes, env, cwd) as ranks:
        return finish(ranks)


def started_ranks(
    code: str,
    nodes: int = 1,
    processes: int = 2,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | str | None = None,
) -> AbstractContextManager[list[RunningRank]]:
    """Start the ranks of an Azure ML PyTorch job, with arguments as of `run_ranks`; they are killed at the end."""
    port = free_port()
    ranks = range(nodes * processes)
    return started(code, [{**azure_variables(rank, nodes, processes, port), **(env or {})} for rank in ranks], cwd)


def run_python(
    code: str,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    returncode: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run Python source, which is dedented, with arguments in a process of its own, and expect its exit code."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=clean_environment(env), capture_output=True, text=True, check=False)
    assert done.returncode == returncode, done.stderr
    return done


def azure_variables(rank: int, nodes: int, processes: int, port: int) -> dict[str, str | None]:
    """What Azure ML sets for a rank of a PyTorch job; the run's id follows from the port."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes * processes),
        "LOCAL_RANK": str(rank % processes),
        "NODE_RANK": str(rank // processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "AZUREML_NODE_COUNT": str(nodes),
        "AZUREML_RUN_ID": f"test_{port}_{os.getpid()}",
        "AZUREML_PROCESS_NAME": f"rank_{rank}",
    }


@contextmanager
def started(
    code: str,
    environments: Sequence[Mapping[str, str | None]],
    cwd: Path | str | None = None,
    launcher: Sequence[str] = (),
) -> Iterator[list[RunningRank]]:
    """Processes that run the source, one for each environment; killed with all their children at the end.

    What asks for a framework is forked from a process that has imported it, as tests/forks.py says.

    Args:
        code: the source of the script; it is dedented.
        environments: what to set on top of this process's variables without any launcher's; None takes one away.
        cwd: the working folder.
        launcher: a command in front of the script, such as torchrun's; Python alone if empty.
    """
    with tempfile.TemporaryDirectory(prefix="allranks-test-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        script = folder / "script.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        ranks: list[RunningRank] = []
        try:
            for number, environment in enumerate(environments):
                command = [*(launcher or [sys.executable]), str(script)]
                variables, framework = clean_environment(environment), None if launcher else framework_of(code)
                process = _start(command, variables, Path(cwd or folder), folder, number, framework)
                ranks.append(RunningRank(number, process, folder))
            yield ranks
        except BaseException:
            for rank in ranks:
                _print_stacks(rank)
                print(f"--- rank {rank.rank}, exit code {rank.process.poll()}\n{rank.stdout}\n{rank.stderr}")
            raise
        finally:
            for rank in ranks:
                with suppress(ProcessLookupError):
                    os.killpg(rank.process.pid, signal.SIGKILL)
                rank.process.wait()


def _print_stacks(rank: RunningRank) -> None:
    """Let a rank that still runs write its stacks to standard error, as ranks do on SIGUSR1 once they have started."""
    rank.kill(signal.SIGUSR1)
    with suppress(subprocess.TimeoutExpired):
        rank.process.wait(1)


def finish(ranks: Sequence[RunningRank]) -> list[RankResult]:
    """Wait until all have ended, and return their results."""
    for rank in ranks:
        rank.process.wait()
    return [RankResult(rank.process.returncode, rank.stdout, rank.stderr, rank.rank) for rank in ranks]


def clean_environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """This process's variables without any launcher's, one thread per process, and ``extra`` on top."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_PREFIXES) and name not in LAUNCHER_NAMES
    }
    merged = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(extra or {})}
    return {name: value for name, value in merged.items() if value is not None}


def free_port() -> int:
    """Return a port that is free on 127.0.0.1 together with the one after it.

    All tests of a user count through one range, so that no two that run at a time get the same port: between this
    function and the start of a rank nothing listens. The range ends before 20000, where ranks without MASTER_PORT listen.
    """
    with (Path(tempfile.gettempdir()) / f"allranks-test-port-{os.getuid()}").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        given = int(file.read() or 0)
        pairs = (12000 + (given + step) % 4000 * 2 for step in range(1, 4000))
        port = next(port for port in pairs if all(map(_is_free, (port, port + 1))))
        file.truncate(0)
        file.write(str((port - 12000) // 2))
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def start_rank(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    out: IO[bytes],
    err: IO[bytes],
    framework: str | None = None,
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start one process in a session of its own; forked from one that has imported the framework, if one is named."""
    if framework is not None and can_fork(environment):
        return ForkServer.of(framework).start(command[1:], environment, cwd, out, err)
    return subprocess.Popen(
        command,
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


def _start(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, folder: Path, number: int, framework: str | None
) -> subprocess.Popen[bytes] | ForkedProcess:
    with (folder / f"out_{number}.txt").open("wb") as out, (folder / f"err_{number}.txt").open("wb") as err:
        return start_rank(command, environment, cwd, out, err, framework)
