"""Where a rank's time goes, which ranks are slow, and batches that are copied one ahead."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from shared.training.core.time_split import DataTimer, RankClock, SlowRanks, TimeReport, TimeSplit
from shared.training.torch.device_copies import copy_ahead, data_timer, one_ahead
from tests.helpers import azure_variables, finish, free_port, started

SLOW_RANK = """
    import json, time
    import torch, torch.distributed as dist
    from shared.distributed import init
    from shared.training.core.time_split import SlowRanks
    from shared.training.core.time_split import TimeReport
    from shared.training.core.time_split import DataTimer
    from shared.training.torch.meter import LossMeter

    def compute(seconds):
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    def batches(seconds):
        for _ in range(STEPS):
            time.sleep(seconds)
            yield 0

    with init("torch") as world:
        slow = world.rank == 1
        for what in ("compute", "data"):
            timer, ranks = DataTimer(), SlowRanks(world.local_world_size, window=0.2, windows=2)
            meter, report = LossMeter(world, timer), TimeReport(world)
            for _ in timer.watch(batches(0.08 * (slow and what == "data"))):
                compute(0.04 if slow and what == "compute" else 0.01)
                dist.all_reduce(torch.ones(1))
                meter.add(torch.ones(()))
                meter.end_step()
                if meter._steps == 10:
                    reading = meter.read(split=True)
                    if world.is_main:
                        report.add(reading.splits, reading.split_steps, 0)
                        for rank in ranks.add(reading.splits, 0):
                            print(what, rank, flush=True)
            world.note(json.dumps(report.document()["time"]["ranks"]))
"""


def of(own: float, wait: float = 0.0, data: float = 0.0) -> TimeSplit:
    return TimeSplit(data=data, compute=own - data, wait=wait)


def windows(slow: SlowRanks, *owns: Sequence[float]) -> list[str]:
    """What is found over windows of 10 s in which the ranks have so many seconds of their own."""
    return [str(rank) for step, each in enumerate(owns) for rank in slow.add([of(own, 10 - own) for own in each], step)]


def test_the_clock_divides_what_a_thread_does() -> None:
    timer, clock = DataTimer(), None

    def batches() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.03)
            yield number

    clock = RankClock(timer)
    assert list(timer.watch(batches())) == [0, 1, 2, 3]
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        pass
    time.sleep(0.15)
    with clock.saving():
        time.sleep(0.05)
    split = clock.split()
    assert split.data >= 0.12
    assert split.compute >= 0.05, "a machine that others use too takes the thread's time away meanwhile"
    assert split.wait >= 0.14
    assert split.save >= 0.05
    assert sum(split.shares().values()) == pytest.approx(1)

    with clock.saving():
        time.sleep(0.05)
    saved = time.perf_counter()
    time.sleep(0.05)
    clock.restart()
    split = clock.split()
    assert 0.05 <= split.save <= split.total < split.save + 0.05 + 2 * (time.perf_counter() - saved - 0.05)


def test_a_rank_is_slow_when_it_has_been_for_three_windows_after_the_first() -> None:
    found = windows(SlowRanks(2), *[(5, 5, 5, 10)] * 4)
    assert found == ["rank 3 on node 1 is 2.0x slower than the median: data 0%, compute 100% of its own time"]


def test_the_first_windows_a_hiccup_and_a_slow_network_name_nobody() -> None:
    even, odd = (8, 8, 9, 8), (5, 5, 5, 10)
    assert not windows(SlowRanks(2), odd, odd, odd, even)
    assert not windows(SlowRanks(2), even, odd, odd, even, odd, odd, even)
    assert not windows(SlowRanks(2), *[(0.5, 0.5, 0.5, 1)] * 6)
    assert not windows(SlowRanks(2), *[(8, 9, 10, 10)] * 6)


def test_of_two_ranks_the_slow_one_is_named_once_and_again_when_it_comes_back() -> None:
    slow = SlowRanks(2)
    assert len(windows(slow, *[(5, 10)] * 9)) == 1
    assert len(windows(slow, (9, 10), *[(5, 10)] * 3)) == 1
    assert [rank["rank"] for rank in slow.documents()] == [1, 1]


def test_the_stages_of_a_pipeline_are_not_compared() -> None:
    stages = [range(2), range(2, 4)]
    assert not windows(SlowRanks(4, stages), *[(5, 5, 10, 10)] * 6)
    assert len(windows(SlowRanks(4, stages), *[(4, 4, 6, 10)] * 6)) == 1


def test_reports_shorter_than_a_window_are_put_together() -> None:
    slow = SlowRanks(2)
    found = [rank for step in range(40) for rank in slow.add([of(0.5, 0.5), of(1, 0, data=0.7)], step)]
    assert [(rank.step, rank.data_share) for rank in found] == [(39, pytest.approx(0.7))]


def test_a_slow_rank_is_found_among_real_ones_and_the_other_is_seen_to_wait(tmp_path: Path) -> None:
    port = free_port()
    environments = [azure_variables(rank, 1, 2, port) for rank in range(2)]
    with started(SLOW_RANK.replace("STEPS", "40"), environments, tmp_path) as ranks:
        results = finish(ranks)
    assert [result.returncode for result in results] == [0, 0], results[0].stderr
    said = results[0].stdout.splitlines()
    tables = [json.loads(line) for line in said if line.startswith("[{")]
    found = [line for line in said if "slower" in line]
    assert [line.split()[:3] for line in found] == [["compute", "rank", "1"], ["data", "rank", "1"]]
    assert tables[0][0]["wait_s"] > 0.25 * 40 * 0.03
    assert tables[1][1]["data_s"] >= 40 * 0.08
    assert tables[1][0]["data_s"] < 0.1 * tables[1][1]["data_s"]


def test_batches_come_in_their_order_and_the_next_one_is_on_its_way() -> None:
    events: list[str] = []

    def note(what: str, batch: int) -> int:
        events.append(f"{what} {batch}")
        return batch

    ahead = one_ahead(iter(range(3)), lambda batch: note("start", batch), lambda batch: note("finish", batch))
    assert list(ahead) == [0, 1, 2]
    assert events == ["start 0", "start 1", "finish 0", "start 2", "finish 1", "finish 2"]
    assert not list(one_ahead(iter(()), lambda batch: batch, lambda batch: batch))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gets_what_was_read() -> None:
    device = torch.device("cuda")
    batches = [(torch.full((1000, 1000), number).pin_memory(), torch.arange(number)) for number in range(8)]
    timer = data_timer(device)
    for number, (rows, labels) in enumerate(timer.watch(copy_ahead(iter(batches), device))):
        assert (rows.float() @ rows.float()).min() == 1000 * number**2
        assert labels.tolist() == list(range(number))
    torch.cuda.synchronize()
    assert timer.seconds >= 0


def test_a_report_has_seconds_for_each_step_and_shares(tmp_path: Path) -> None:
    class Nodes:
        local_world_size = 1

    report = TimeReport(Nodes())  # type: ignore[arg-type]  # this is all that it asks of the world
    numbers, _ = report.add([TimeSplit(1, 2, 1, 0), TimeSplit(3, 4, 1, 0)], steps=2, step=2)
    assert (numbers["time/data_s"], numbers["time/data_s_min"], numbers["time/data_s_max"]) == (1, 0.5, 1.5)
    assert numbers["time/compute_share"] == 0.5
    assert report.end_epoch() == ["time data 33%, compute 50%, wait 17%, save 0%"]
    assert not report.end_epoch()
    assert report.document()["time"]["ranks"][1]["node"] == 1
