"""Reads mutants, each in a process of its own that is forked from one with all imports; says what went wrong with which."""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutators import mutate_file
from tests.fuzz.targets import Target

MOST_SECONDS = 10.0
MOST_BYTES = 500 * 2**20
"""What one mutant may take beyond what its process has before."""
_PATIENCE = 3.0
"""Times the seconds of a mutant before it is killed: the clock of a busy machine is not the mutant's."""
_ADDRESSES = 8 * 2**30
"""Bytes of addresses that a mutant may have beyond those of its process, so that none takes the machine."""
_FOUND = 99


@dataclass(frozen=True)
class Finding:
    """What went wrong with a mutant: ``kind`` is traceback, hang, memory, half-written or death."""

    target: str
    number: int
    kind: str
    what: str


@dataclass
class Running:
    number: int
    pid: int
    folder: Path
    began: float


@dataclass
class Report:
    """What became of the mutants of a target."""

    target: str
    count: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    largest: int = 0
    findings: list[Finding] = field(default_factory=list)


def mutant_chance(target: str, seed: int, number: int) -> random.Random:
    """What decides everything about a mutant."""
    return random.Random(f"{target} {seed} {number}")


def make_mutant(target: Target, seeds: Path, folder: Path, seed: int, number: int) -> None:
    """Copy the seeds to a folder, and mutate some of its files."""
    shutil.copytree(seeds, folder, symlinks=True)
    chance = mutant_chance(target.name, seed, number)
    files = [path for path in sorted(folder.glob(target.mutated)) if path.is_file() and not path.is_symlink()]
    chosen = chance.sample(files, min(len(files), chance.choice((1, 1, 1, 2))))
    for path in chosen:
        mutate_file(path, chance)
    if target.group == "yaml":
        (folder / "MUTATED").write_text(chosen[0].name)


def run_mutants(target: Target, numbers: Sequence[int], seed: int, scratch: Path, *, workers: int = 1) -> Report:
    """Read mutants by number and return what became of them; this process imports for them, and has to have no threads."""
    seeds = scratch / f"{target.name}.seeds"
    report = Report(target.name)
    _import_all(target, seeds, scratch)
    began, waiting, running = time.monotonic(), iter(numbers), dict[int, Running]()
    for each in _slots(running, workers):
        if each is not None:
            _conclude(target, each, report)
        elif (number := next(waiting, None)) is not None:
            one = _start(target, seeds, scratch / f"{target.name}.{number}", seed, number)
            running[one.pid] = one
            report.count += 1
        elif not running:
            break
    report.seconds = round(time.monotonic() - began, 1)
    return report


def _slots(running: dict[int, Running], workers: int) -> Iterator[tuple[Running, int, resource.struct_rusage] | None]:
    """None where another mutant may start or nothing is left, else one that has ended, its status and what it used."""
    while True:
        pid, status, used = os.wait4(-1, os.WNOHANG) if running else (0, 0, None)
        if pid in running and used is not None:
            yield running.pop(pid), status, used
        elif len(running) < workers or not running:
            yield None
            if running and pid == 0:
                time.sleep(0.001)
        else:
            time.sleep(0.002)
        for one in running.values():
            if time.monotonic() - one.began > _PATIENCE * MOST_SECONDS:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)


def _import_all(target: Target, seeds: Path, scratch: Path) -> None:
    """Write the seeds and read them, in a process that tells what it had to import; import that here."""
    told, trial = scratch / f"{target.name}.modules", scratch / f"{target.name}.trial"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            before = set(sys.modules)
            seeds.mkdir(parents=True)
            target.seeds(seeds)
            shutil.copytree(seeds, trial, symlinks=True)
            if target.group == "yaml":
                (trial / "MUTATED").write_text(next(path.name for path in sorted(trial.glob(target.mutated))))
            target.read(trial)
            told.write_text(json.dumps(sorted(set(sys.modules) - before)))
            code = 0
        except BaseException:  # noqa: BLE001  # told, and the process ends
            traceback.print_exc()
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0, f"the seeds of {target.name} cannot be read"
    for name in json.loads(told.read_text()):
        with suppress(Exception):
            importlib.import_module(name)
    shutil.rmtree(trial)


def _start(target: Target, seeds: Path, folder: Path, seed: int, number: int) -> Running:
    began = time.monotonic()
    pid = os.fork()
    if pid:
        return Running(number, pid, folder, began)
    code = 1
    try:
        os.setsid()
        make_mutant(target, seeds, folder, seed, number)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESSES,) * 2)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clock = time.process_time()
        target.read(folder)
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, it is the finding
        code = _FOUND
        Path(f"{folder}.found").write_text(traceback.format_exc())
    with suppress(BaseException):
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) * 1024
        Path(f"{folder}.used").write_text(f"{time.process_time() - clock} {grown}")
    os._exit(code)


def _conclude(target: Target, ended: tuple[Running, int, resource.struct_rusage], report: Report) -> None:
    one, status, _ = ended
    code = os.waitstatus_to_exitcode(status)
    used, found = Path(f"{one.folder}.used"), Path(f"{one.folder}.found")
    seconds, grown = map(float, used.read_text().split()) if used.exists() else (0.0, 0.0)
    wall = time.monotonic() - one.began
    report.slowest, report.largest = max(report.slowest, seconds), max(report.largest, int(grown))
    kind, what = "", ""
    if code == _FOUND:
        what = found.read_text()[-6000:]
        kind = "half-written" if "HalfWritten" in what.splitlines()[-1] else "traceback"
    elif code == -signal.SIGKILL and wall > MOST_SECONDS:
        kind, what = "hang", f"killed after {wall:.0f} s"
    elif code:
        kind, what = "death", f"exit code {code}"
    elif seconds > MOST_SECONDS:
        kind, what = "hang", f"{seconds:.1f} s of processor"
    elif grown > MOST_BYTES:
        kind, what = "memory", f"{grown / 2**20:.0f} MiB"
    if kind:
        report.findings.append(Finding(target.name, one.number, kind, what))
    for path in (used, found):
        path.unlink(missing_ok=True)
    for path in (one.folder, Path(f"{one.folder}.out")):
        shutil.rmtree(path, ignore_errors=True)
