"""check_cluster: everybody meets everybody, differences are found, and the rank that does not answer is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.check_cluster.check_cluster import message_sizes, partners_by_round
from shared.cluster import RankPair, find_problems
from shared.cluster.machine import infiniband_ports
from tests.components.support import run_component
from tests.local.support import carrying, command, environ
from tests.waiting import TIMEOUT, wait_for


@given(st.integers(1, 40))
def test_everybody_meets_everybody_once_and_partners_agree(world_size):
    rounds = [partners_by_round(rank, world_size) for rank in range(world_size)]
    for rank, met in enumerate(rounds):
        assert sorted(partner for partner in met if partner is not None) == [r for r in range(world_size) if r != rank]
        for turn, partner in enumerate(met):
            assert partner is None or rounds[partner][turn] == rank


def machine(rank: int, **changes: object) -> dict[str, object]:
    facts = {"rank": rank, "device": {"kind": "cuda", "name": "A", "id": f"gpu{rank}"}, "versions": {"torch": "2"}}
    return {**facts, "infiniband": [], "variables": {}, **changes}


def test_what_is_wrong_is_said_with_the_ranks():
    machines = [
        machine(0),
        machine(1, versions={"torch": "3"}),
        machine(2, device={"kind": "cuda", "name": "A", "id": "gpu0"}, unusable="The driver is too old."),
    ]
    problems = find_problems(machines, [RankPair(0, 1, 1.0), RankPair(1, 2, 5.0, "timed out")])
    assert problems == [
        "rank 1 does not reach rank 2: timed out",
        "rank 2: The driver is too old.",
        "torch differs: 2 on rank 0, 2; 3 on rank 1.",
        "ranks 0, 2 share one GPU (gpu0): NCCL refuses that.",
    ]
    assert find_problems([machine(0), machine(1)], [RankPair(0, 1, 1.0)]) == []


def test_infiniband_ports_are_read_from_the_kernel(tmp_path):
    port = tmp_path / "mlx5_0/ports/1"
    port.mkdir(parents=True)
    for name, text in {"state": "4: ACTIVE\n", "rate": "200 Gb/sec (4X HDR)\n", "link_layer": "InfiniBand\n"}.items():
        (port / name).write_text(text)
    assert infiniband_ports(tmp_path) == [
        {"device": "mlx5_0", "port": "1", "state": "ACTIVE", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}
    ]
    assert infiniband_ports(tmp_path / "nothing") == []


@pytest.mark.slow
def test_two_emulated_nodes_are_sound(tmp_path):
    report = tmp_path / "report"
    words = ("--report", report, "--max-megabytes", 1, "--repeats", 3)
    done = run_component("check_cluster", *words, folder=tmp_path, nodes=2, processes=2)
    assert done.ok, done.output
    survey = json.loads((report / "cluster.json").read_text())
    assert survey["problems"] == []
    assert len(survey["pairs"]) == 6
    assert [one["size"] for one in survey["all_reduce"]] == message_sizes(1)
    line = json.loads((tmp_path / "outputs" / "metrics.jsonl").read_text())
    assert "bus_gbytes_per_second" in line["metrics"]
    for name in ("index.html", "all_reduce.png", "all_reduce.csv", "pairs.csv"):
        assert (report / name).stat().st_size > 50


@pytest.mark.slow
def test_the_rank_that_does_not_answer_is_named(tmp_path):
    arguments = ("check_cluster", "init_timeout=0.2", "step_timeout=0.1", "--scale", "check_cluster=1x3", "--json")
    engine = subprocess.Popen(command("run", *arguments), cwd=tmp_path, env=environ(), stdout=subprocess.PIPE)
    frozen = wait_for(lambda: set(carrying(f"{tmp_path}/.allranks")) & set(carrying("\0RANK=2\0")))
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    document = json.loads(engine.communicate(timeout=TIMEOUT)[0])
    assert engine.returncode == 1
    text = "\n".join(document["steps"]["check_cluster"]["failure"]["last_lines"])
    assert "rank 2" in text.lower(), text
