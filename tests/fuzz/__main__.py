"""``make fuzz``: mutants of files that others write, each read in a forked process with limits of time and memory."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.fuzz.mutators import mutate_file
from tests.fuzz.targets import TARGETS

SECONDS = 10
"""Processor seconds that one mutant may take."""
CLOCK = 60
"""Seconds after which a mutant that waits is ended: on a busy machine it may wait for the processor."""
BYTES = 500 * 2**20
"""Memory that one mutant may take beyond what its process has before."""
_ADDRESSES = 8 * 2**30


def main() -> int:
    """Read the mutants that the command line asks for; 1 if something went wrong with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=1000, help="of each reader's files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder of the mutants that went wrong")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--target", choices=TARGETS, nargs="+", default=list(TARGETS), help="these readers alone")
    args = parser.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        for name in args.target:
            findings = read_mutants(name, args.mutants, args.seed, Path(scratch), args.workers)
            print(f"{name}: {args.mutants} mutants, {len(findings)} went wrong", flush=True)
            for number, what in findings.items():
                kept = args.keep / f"{name}-{args.seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                make_mutant(name, Path(scratch) / name, kept, args.seed, number)
                print(f"{kept}\n{what}", flush=True)
            bad += len(findings)
    print(f"{bad} mutants went wrong" if bad else "nothing went wrong")
    return 1 if bad else 0


def read_mutants(name: str, count: int, seed: int, scratch: Path, workers: int = 1) -> dict[int, str]:
    """Return what went wrong with mutants of a target, by their numbers; the seeds stay in the scratch folder."""
    seeds = scratch / name
    _import_all(name, seeds, scratch)
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        found = pool.map(functools.partial(_judge, name, seeds, seed), range(count), chunksize=1)
    return {number: what for number, what in enumerate(found) if what}


def make_mutant(name: str, seeds: Path, folder: Path, seed: int, number: int) -> None:
    """Copy the seeds to a folder, and mutate one or two of its files; ``MUTATED`` beside it names the first."""
    shutil.copytree(seeds, folder, symlinks=True)
    chance = random.Random(f"{name} {seed} {number}")
    files = [path for path in sorted(folder.glob(TARGETS[name].mutated)) if path.is_file() and not path.is_symlink()]
    chosen = chance.sample(files, min(len(files), chance.choice((1, 1, 1, 2))))
    for path in chosen:
        mutate_file(path, chance)
    Path(f"{folder}.mutated").write_text(chosen[0].name)


def _import_all(name: str, seeds: Path, scratch: Path) -> None:
    """Write the seeds and read a mutant in a forked process, and import here, without threads, what it imported."""
    told = scratch / f"{name}.modules"
    before = set(sys.modules)

    def trial() -> None:
        seeds.mkdir()
        TARGETS[name].seeds(seeds)
        shutil.copytree(seeds, scratch / "trial", symlinks=True)
        Path(f"{scratch / 'trial'}.mutated").write_text(min(path.name for path in seeds.glob(TARGETS[name].mutated)))
        TARGETS[name].read(scratch / "trial")
        told.write_text(json.dumps(sorted(set(sys.modules) - before)))

    what = _read_forked(trial, 60, 2**40)
    assert not what, f"the seeds of {name} cannot be read: {what}"
    for module in json.loads(told.read_text()):
        with suppress(Exception):
            importlib.import_module(module)
    shutil.rmtree(scratch / "trial")


def _judge(name: str, seeds: Path, seed: int, number: int) -> str:
    """Read one mutant; "" or what went wrong."""
    folder = seeds.with_name(f"{name}.{number}")

    def read() -> None:
        make_mutant(name, seeds, folder, seed, number)
        TARGETS[name].read(folder)

    what = _read_forked(read, SECONDS, BYTES)
    for left in seeds.parent.glob(f"{name}.{number}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return what


def _read_forked(read: Callable[[], None], seconds: int, memory: int) -> str:
    """Call a function in a process of its own; "" or the traceback, the hang, the memory or the death."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(CLOCK)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESSES,) * 2)
            read()
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it is, it is the finding
            os.write(sender, traceback.format_exc()[-6000:].encode("utf-8", "replace"))
        os._exit(code)
    os.close(sender)
    _, status, used = os.wait4(pid, 0)
    with os.fdopen(receiver, "rb") as pipe:
        what = pipe.read().decode()
    code = os.waitstatus_to_exitcode(status)
    grown = (used.ru_maxrss - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024
    if code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL):
        return "hang"
    if code or grown > memory:
        return what or (f"memory: {grown:,} bytes" if not code else f"death: exit code {code}")
    return ""


if __name__ == "__main__":
    sys.exit(main())
