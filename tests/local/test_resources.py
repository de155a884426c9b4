"""What steps use of the machine: real processes, looked at by the engine while they run and when they have ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from allranks import load_run
from allranks.local.resources.gpus import GpuState, parse_gpu_states
from allranks.local.resources.samples import SampleFile, read_samples
from allranks.local.resources.summary import resource_curves, summarise_samples
from tests.local.support import ROOT, allranks, pipeline, run_json, step

WORK = """
import os, resource
from pathlib import Path
from tests.waiting import wait_for
rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
held = b"x" * (30_000_000 * (rank + 1))
is_worker = os.fork() == 0
while resource.getrusage(resource.RUSAGE_SELF).ru_utime < 0.03:
    pass
if is_worker:
    samples = Path.cwd().parents[2] / "resources.jsonl"
    looks = lambda: samples.read_text().count('"of": "step"') if samples.exists() else 0
    before = looks()
    wait_for(lambda: looks() >= before + 2)
    with open(f"written_{rank}", "wb") as file:
        file.write(held[:3_000_000])
    os._exit(0)
os.wait()
with open(f"written_{rank}", "rb") as file:
    file.read()
"""
TORCHRUN = "for r in 0 1; do TORCHELASTIC_RUN_ID=x RANK=$((2 * NODE_RANK + r)) python work.py & done; wait"
STEPS = {
    "ranks": step("python work.py", more="distribution: {type: pytorch, process_count_per_instance: 2}"),
    "torchrun": step(TORCHRUN, more="distribution: {type: pytorch, process_count_per_instance: 1}"),
    "mpi": step("python work.py", more="distribution: {type: mpi, process_count_per_instance: 1}"),
    "moment": step("head -c 5000000 /dev/zero > f"),
}
WAITS = f"environment_variables: {{PYTHONPATH: {ROOT}}}"
ANSWER = """0, GPU-5b1a2c3d-0000-1111-2222-333344445555, 87, 40231
1, GPU-6c0d0000-0000-1111-2222-333344445555, [N/A], [N/A]
"""  # of nvidia-smi --query-gpu=index,uuid,utilization.gpu,memory.used --format=csv,noheader,nounits


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with a run of steps that are started in different ways, and the run's document."""
    folder = tmp_path_factory.mktemp("resources")
    (folder / "code").mkdir()
    (folder / "code" / "work.py").write_text(WORK)
    (folder / "bin").mkdir()
    stand_in = folder / "bin" / "nvidia-smi"
    stand_in.write_text(f"#!/bin/sh\n[ $# = 2 ] || exit 2\ncat <<END\n{ANSWER}END\n")
    stand_in.chmod(0o755)
    steps = {
        name: text.replace("type: command", f"type: command, code: ./code, {WAITS}", 1) for name, text in STEPS.items()
    }
    wide = ", resources: {instance_count: 2}}"
    jobs = "".join(f"  {name}: {text if name == 'moment' else text[:-1] + wide}\n" for name, text in steps.items())
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = run_json(pipeline(folder, f"type: pipeline\njobs:\n{jobs}"), cwd=folder, PATH=path)
    assert done["exit"] == 0, done
    return folder, json.loads(allranks("runs", "show", "latest", "--json", cwd=folder).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), [("ranks", [0, 0, 1, 1]), ("torchrun", [0, 0, 1, 1]), ("mpi", [0, 1])])
def test_each_rank_has_what_it_and_its_workers_use(
    executed: tuple[Path, dict[str, Any]], name: str, nodes: list[int]
) -> None:
    found = executed[1]["steps"][name]["resources"]
    assert {rank: used["node"] for rank, used in found["ranks"].items()} == {
        str(at): node for at, node in enumerate(nodes)
    }
    for rank, used in found["ranks"].items():
        assert used["memory_peak_bytes"] > 30e6 * (int(rank) + 1)
        assert used["processes_peak"] >= 2, "a worker of a rank counts as the rank's"
        assert used["cores_mean"] == pytest.approx(used["cpu_seconds"] / used["seconds"], abs=0.01)
    assert ("launcher" in found) is (name != "ranks")
    parts = [*found["ranks"].values(), *([found["launcher"]] if "launcher" in found else [])]
    for key in ("cpu_seconds", "read_bytes", "written_bytes"):
        assert found[key] == pytest.approx(sum(used[key] for used in parts), abs=0.02), "nothing is lost or told twice"
    assert found["cpu_seconds"] >= 2 * 0.02 * len(nodes)
    home = executed[0] / ".allranks"
    assert load_run("latest", home).resources(name) == found
    assert found["memory_peak_bytes"] >= sum(30e6 * (rank + 1) for rank in range(len(nodes)))


@pytest.mark.parametrize(("name", "ranks"), [("ranks", 4), ("torchrun", 4), ("mpi", 2)])
def test_what_is_read_and_written_right_before_the_end_is_told(
    executed: tuple[Path, dict[str, Any]], name: str, ranks: int
) -> None:
    used = executed[1]["steps"][name]["resources"]
    assert used["written_bytes"] >= ranks * 3_000_000
    assert used["read_bytes"] >= ranks * 3_000_000


def test_curves_are_by_rank_over_seconds_and_the_page_draws_them(executed: tuple[Path, dict[str, Any]]) -> None:
    folder, document = executed
    curves = document["steps"]["ranks"]["details"]["resources"]
    assert [name for name in curves if not name.startswith("gpu")] == ["cores", "memory", "read", "written"]
    assert list(curves["memory"]) == ["rank 0", "rank 1", "rank 2", "rank 3"]
    for points in curves["cores"].values():
        assert len(points) >= 2
        assert [at for at, _ in points] == sorted(at for at, _ in points)
    page = next(folder.glob(".allranks/runs/*/report.html")).read_text()
    assert 'aria-label="processor cores in use over seconds: rank 0, rank 1, rank 2, rank 3"' in page


def test_runs_show_has_a_line_for_the_step_and_for_each_rank(executed: tuple[Path, dict[str, Any]]) -> None:
    shown = allranks("runs", "show", "latest", cwd=executed[0]).stdout
    lines = shown.partition("\nresources\n")[2].splitlines()
    names = [line.split("  ")[1] for line in lines]
    assert names[:5] == ["ranks", *(f"ranks rank {rank}" for rank in range(4))]
    assert {"torchrun launcher", "moment"} <= set(names)
    assert "peak memory" in lines[0]
    assert " cores " in lines[0]


def test_gpus_are_told_as_nvidia_smi_tells_them(executed: tuple[Path, dict[str, Any]]) -> None:
    states = parse_gpu_states(ANSWER)
    assert states == [GpuState("0", "GPU-5b1a2c3d-0000-1111-2222-333344445555", 0.87, 40231 * 2**20)]
    assert [states[0].is_one_of(visible) for visible in (None, "0,1", "GPU-5b1a", "1", "")] == [True] * 3 + [False] * 2
    found = executed[1]["steps"]["mpi"]["resources"]["gpus"]
    assert found == {"0": {"use_mean": pytest.approx(0.87, abs=0.01), "memory_peak_bytes": 40231 * 2**20}}


def _samples(at: int, ranks: int = 2) -> list[dict[str, Any]]:
    about = {"attempt": 1, "at": float(at), "over": 1.0}
    used = {"cpu_seconds": 0.5, "read_bytes": 10, "written_bytes": 1, "disk_read_bytes": 0, "disk_written_bytes": 0}
    used |= {"processes": 2, "threads": 8}
    step_line = {**about, "of": "step", **used, "rss_bytes": 100}
    lines = [{**about, "of": "rank", "node": 0, "rank": rank, **used} for rank in range(ranks)]
    return [step_line, *({**line, "rss_bytes": 99 if at == 1234 else line["rank"] + 1} for line in lines)]


def test_the_file_of_a_long_step_stays_bounded_and_loses_no_peak_and_no_sum(tmp_path: Path) -> None:
    path = tmp_path / "resources.jsonl"
    file = SampleFile(path)
    halved = [at for at in range(1, 1501) if file.append(_samples(at))]
    assert halved == [240 + 120 * number for number in range(11)]
    samples = read_samples(path)
    assert len(samples) < 3 * 240
    assert summarise_samples(samples)["ranks"]["0"] == {
        "node": 0,
        "seconds": 1500.0,
        "cores_mean": 0.5,
        "memory_peak_bytes": 99,
        "cpu_seconds": 750.0,
        "read_bytes": 15_000,
        "written_bytes": 1_500,
        "disk_read_bytes": 0,
        "disk_written_bytes": 0,
        "processes_peak": 2,
        "threads_peak": 8,
    }
    with path.open("a") as torn:
        torn.write('{"at": 3001.0, "ov')
    assert len(read_samples(path)) == len(samples), "a line that is being written is left for the next look"
    assert resource_curves(samples, ["1"])["cores"] == {"rank 1": [(at, 0.5) for at in _times(samples)]}


def _times(samples: list[dict[str, Any]]) -> list[float]:
    return [sample["at"] for sample in samples if sample.get("rank") == 1]
