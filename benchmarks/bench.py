"""The same chains of steps with allranks, with the shell and with other tools that run pipelines on one machine.

    make bench                            (fewer rounds: make bench ARGS="--rounds 7 --trainings 3")

Each peer is installed, at the version that benchmarks/peers/<peer>.txt says, into an environment of its own below
build/bench, and is given the same commands by a small file of ours beside that. What is run in turn is each chain with
each tool, round after round, so that a neighbour on the machine slows all of them. The commands of training steps are
torchrun's for all but allranks, which starts the ranks itself. Nothing is reused from an earlier run.
Python that is aborted at its end (gloo's threads) is measured again.

Left out is the local process backend of Kubeflow Trainer: it knows single jobs and no chains, and makes for each an
environment into which it installs torch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from peers.chains import CHAINS, ROOT, ChainStep, StepChain, copy_components, pipeline_of, steps_of  # noqa: E402
from peers.chains import write_steps as write_json  # noqa: E402
from peers.metaflow_chain import write_flow  # noqa: E402
from peers.page import write_page  # noqa: E402
from side_by_side import keep  # noqa: E402

ENVIRONMENTS = ROOT / "build" / "bench"
PEERS = ("torchx", "metaflow", "kfp")
_YAML_ONCE = f"{sys.executable} -c 'import yaml'"

Command = Callable[[StepChain, list[ChainStep], Path], list[str]]
"""Prepares a run of a chain in an empty folder; gives the command that is timed."""


@dataclass
class BenchResult:
    """Seconds of each round of one tool's run of a chain, those that passed and the processor's."""

    tool: str
    chain: str
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def main() -> None:
    """Install what is missing, measure, and write figures, page and picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15, help="rounds of the chains that do nothing")
    parser.add_argument("--trainings", type=int, default=7, help="rounds of the chains that train")
    parser.add_argument("--peers", type=int, default=7, help="of these rounds, those in which other tools take part")
    asked = parser.parse_args()
    missing = {peer: why for peer in PEERS if (why := install_peer(peer))}
    tools = {
        "allranks": run_allranks,
        "shell": run_shell,
        "shell, Python with yaml": run_shell_with_yaml,
        **{peer: run for peer, run in (("torchx", run_torchx), ("metaflow", run_metaflow), ("kfp", run_kfp))
           if peer not in missing},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        copy_components(folder)
        results: list[BenchResult] = []
        for chain in CHAINS:
            rounds = asked.trainings if chain.trains else asked.rounds
            results += measure_chain(chain, tools, folder, rounds, asked.peers)
            table = [row_of(one, results) for one in results]  # written after each chain: they take long
            keep("peers", [], table=table, versions=versions(missing), not_installed=missing)
            write_page(table, versions(missing))


def install_peer(peer: str) -> str:
    """Make a peer's environment if it is not there; why that failed, or nothing."""
    home, wanted = ENVIRONMENTS / peer, HERE / "peers" / f"{peer}.txt"
    stamp = home / "installed.txt"
    if stamp.is_file() and stamp.read_text() == wanted.read_text():
        return ""
    made = subprocess.run([sys.executable, "-m", "venv", str(home)], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(wanted)]
        made = subprocess.run(install, capture_output=True, text=True, check=False)
    if made.returncode:
        return (made.stderr or made.stdout).strip()[-300:]
    stamp.write_text(wanted.read_text())
    return ""


class AbortedError(Exception):
    """Python was aborted at its end."""


def measure_chain(
    chain: StepChain, tools: Mapping[str, Command], folder: Path, rounds: int, peers: int
) -> list[BenchResult]:
    """Run a chain with each tool in turn, other tools in the first rounds; one round first that does not count."""
    results = {tool: BenchResult(tool, chain.title) for tool in tools if not ("yaml" in tool and chain.trains)}
    for number in range(rounds + 1):
        for tool, result in results.items():
            if tool in PEERS and number > peers:
                continue
            wall, processor = run_once(tool, tools[tool], chain, folder)
            if number:
                result.wall.append(round(wall, 4))
                result.processor.append(round(processor, 4))
        print(f"{chain.title}: round {number} of {rounds}", flush=True)
    return list(results.values())


def run_once(tool: str, prepare: Command, chain: StepChain, folder: Path) -> tuple[float, float]:
    """Run a chain in a folder of its own; see `timed`."""
    for _ in range(9):
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as name:
            out = Path(name)
            command = prepare(chain, steps_of(chain, folder, out), out)
            try:
                return timed(command, out)
            except AbortedError:
                continue
    raise SystemExit(f"{tool}: Python was aborted nine times in a row")


def timed(command: list[str], out: Path) -> tuple[float, float]:
    """Run a command; the seconds that passed, and the processor's of it and all that it waited for."""
    environ = {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // 2)),
        "MLFLOW_TRACKING_URI": f"sqlite:///{out}/mlflow.db",
        "PYTHONDONTWRITEBYTECODE": "",  # or whatever is installed without bytecode compiles all of it, each time
        "METAFLOW_USER": "bench",
        "METAFLOW_HOME": f"{out}/metaflow",
        "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(out),
    }
    if "allranks" in command:
        environ |= {"PYTHONPATH": str(ROOT)}
        for name in ("MLFLOW_TRACKING_URI", "METAFLOW_HOME", "METAFLOW_DATASTORE_SYSROOT_LOCAL"):
            del environ[name]  # it makes a database itself
    log = out / "log"
    with log.open("w") as lines:
        start = time.perf_counter()
        started = subprocess.Popen(command, cwd=out, env=environ, stdout=lines, stderr=lines)
        _, status, used = os.wait4(started.pid, 0)
        wall = time.perf_counter() - start
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode and "Signal 6 (SIGABRT)" in log.read_text():
        raise AbortedError
    if started.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-4000:]}")
    return wall, used.ru_utime + used.ru_stime


ALLRANKS = [sys.executable, "-m", "allranks"]


def run_allranks(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """The chain as a pipeline."""
    del steps
    (out / "pipeline.yaml").write_text(pipeline_of(chain))
    runs = out.parent / "runs"  # one for all, as people have: ranks are given its place, and forked for that one
    return [*ALLRANKS, "run", "pipeline.yaml", "--no-cache", "--runs-dir", str(runs)]


def run_shell(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """The commands one after the other, in a script; a null step is a shell of its own."""
    del chain
    lines = [
        f"(cd {step.folder} && {' '.join(step.command)}) || exit 1" if step.command else "bash -c true"
        for step in steps
    ]
    (out / "chain.sh").write_text("\n".join(lines) + "\n")
    return ["bash", "chain.sh"]


def run_shell_with_yaml(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """The same, and before that what any tool in Python that reads YAML has to do."""
    command = run_shell(chain, steps, out)
    script = out / "chain.sh"
    script.write_text(f"{_YAML_ONCE}\n{script.read_text()}")
    return command


def run_torchx(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """With TorchX's local_cwd scheduler."""
    del chain
    write_json(steps, out / "steps.json")
    return [peer_python("torchx"), str(HERE / "peers" / "torchx_chain.py"), "steps.json", str(out / "logs")]


def run_metaflow(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """With Metaflow's local runtime."""
    del chain
    write_flow(steps, out / "flow.py")
    return [peer_python("metaflow"), "flow.py", "--quiet", "--no-pylint", "run"]


def run_kfp(chain: StepChain, steps: list[ChainStep], out: Path) -> list[str]:
    """With the local runner of Kubeflow Pipelines."""
    del chain
    write_json(steps, out / "steps.json")
    return [peer_python("kfp"), str(HERE / "peers" / "kfp_chain.py"), "steps.json", str(out / "root")]


def peer_python(peer: str) -> str:
    """The interpreter of a peer's environment."""
    return str(ENVIRONMENTS / peer / "bin" / "python")


def row_of(one: BenchResult, results: list[BenchResult]) -> dict[str, object]:
    """One line of the table, with the median of the rounds' ratios to the shell and to the shell with yaml."""
    row: dict[str, object] = {"chain": one.chain, "tool": one.tool, "rounds": len(one.wall)}
    for what in ("wall", "processor"):
        taken: list[float] = getattr(one, what)
        row[what] = [min(taken), statistics.median(taken), max(taken)]
        for name, base in (("shell", "shell"), ("yaml", "shell, Python with yaml")):
            found = [other for other in results if (other.chain, other.tool) == (one.chain, base)]
            if found:
                pairs = zip(taken, getattr(found[0], what), strict=False)  # fewer rounds of other tools
                row[f"{what}_of_{name}"] = round(statistics.median(a / b for a, b in pairs), 3)
    return {**row, "wall_seconds": one.wall, "processor_seconds": one.processor}


def versions(missing: dict[str, str]) -> dict[str, str]:
    """What was installed, by peer."""
    pinned = {peer: (HERE / "peers" / f"{peer}.txt").read_text().strip() for peer in PEERS if peer not in missing}
    ask = "import torch; print(torch.__version__)"
    torch = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    return {**{peer: text.partition("==")[2] for peer, text in pinned.items()}, "torch": torch}


if __name__ == "__main__":
    main()
