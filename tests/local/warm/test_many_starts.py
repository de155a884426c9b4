"""Five hundred runs of one keeper: it keeps no memory, no descriptor and no process of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.warm.support import Warmth, wait_until

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]


def test_five_hundred_starts_leave_nothing_behind(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import numpy\nprint(numpy.arange(4).sum())\n")
    runs = tmp_path / "runs"
    run = ("train.py", "--scale", "1x2", "--distribution", "pytorch", "--runs-dir", runs)
    warmth.warm_up(*run, cwd=tmp_path)
    taken = []
    for number in range(1, 502):
        assert warmth.run(*run, cwd=tmp_path)["exit"] == 0
        if number in {101, 501}:
            wait_until(lambda: len(family(warmth)) == 1 + len(warmth.state()["templates"]))
            taken.append({pid: (descriptors(pid), kibibytes(pid)) for pid in family(warmth)})
    assert warmth.forked() == 1002
    assert warmth.engines() >= 490, "the first ones find an engine that still imports"
    first, last = taken
    assert first.keys() == last.keys(), "nobody has ended, nobody has come"
    for pid, (open_files, memory) in last.items():
        print(f"process {pid}: {first[pid]} after 100 runs, {(open_files, memory)} after 500")
        assert open_files == first[pid][0]
        assert memory < first[pid][1] + 1024


def family(warmth: Warmth) -> list[int]:
    """The keeper and all processes below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    template = warmth.state()["templates"][0]["pid"]
    found = [parents[template]]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return sorted(found)


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def kibibytes(pid: int) -> int:
    """What a process holds of memory that it shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
