"""Where a rank's time goes, which ranks are slow, and batches that are copied one ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch

from shared.distributed import World
from shared.training.core.meter import LossMeter
from shared.training.core.time_split import DataTimer, RankClock, SlowRanks, ThreadClock, TimeReport, TimeSplit
from shared.training.torch import device_copies
from shared.training.torch.device_copies import copy_ahead, data_timer, one_ahead
from tests.shared.distributed.threads import on_ranks


class Clock:
    """The clocks of one rank: seconds that have `passed`, and those of them that its thread has `computed`."""

    def __init__(self) -> None:
        self.passed = self.computed = 0.0

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def compute(self, seconds: float) -> None:
        self.passed += seconds
        self.computed += seconds

    def batches(self, count: int, seconds: float) -> Iterator[int]:
        for number in range(count):
            self.sleep(seconds)
            yield number

    def timer(self) -> DataTimer:
        return DataTimer(lambda: self.passed, lambda: self.computed)

    def divided(self, timer: DataTimer) -> RankClock:
        return RankClock(timer, None, lambda: self.passed, lambda: self.computed)


def of(own: float, wait: float = 0.0, data: float = 0.0) -> TimeSplit:
    return TimeSplit(data=data, compute=own - data, wait=wait)


def windows(slow: SlowRanks, *owns: Sequence[float]) -> list[str]:
    """What is found over windows of 10 s in which the ranks have so many seconds of their own."""
    return [str(rank) for step, each in enumerate(owns) for rank in slow.add([of(own, 10 - own) for own in each], step)]


def test_the_clock_divides_what_a_thread_does() -> None:
    clock = Clock()
    timer = clock.timer()
    split = clock.divided(timer)
    assert list(timer.watch(clock.batches(4, 0.25))) == [0, 1, 2, 3]
    clock.compute(2)
    clock.sleep(4)
    with split.saving():
        clock.compute(3)
        clock.sleep(5)
    assert split.split() == TimeSplit(data=1, compute=2, wait=4, save=8)

    with split.saving():
        clock.sleep(8)
    clock.sleep(16)
    split.restart()
    assert split.split() == TimeSplit(save=8)


def test_a_thread_without_a_processor_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = ThreadClock()
    if thread._delays is None:
        pytest.skip("only Linux says how long a thread had no processor")
    monkeypatch.setattr("os.pread", lambda *_: b"17 5000000000 3")
    monkeypatch.setattr("time.thread_time", lambda: 2.0)
    assert thread.busy() == 7


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


class Meter(LossMeter):
    """Sees no loss."""

    def _agree(self, wish: float) -> tuple[float, float]:
        return 0.0, self._world.sum([wish], "meter")[0]


@pytest.mark.parametrize(
    ("compute", "data", "said"),
    [(0.5, 0.0, "4.0x slower than the median: data 0%"), (0.125, 1.0, "9.0x slower than the median: data 89%")],
)
def test_a_slow_rank_is_found_and_the_other_is_seen_to_wait(compute: float, data: float, said: str) -> None:
    def train(world: World) -> tuple[list[str], list[dict[str, float]]]:
        clock, slow, found = Clock(), world.rank == 1, list[str]()
        timer = clock.timer()
        meter, report, ranks = Meter(world, timer, counts_waits=False), TimeReport(world), SlowRanks(2, None, 2, 2)
        meter.clock = clock.divided(timer)
        for _ in timer.watch(clock.batches(40, data * slow)):
            clock.compute(compute if slow else 0.125)
            clock.sleep(world.max(clock.passed, "the gradients of all are there") - clock.passed)
            meter.end_step()
            if meter._steps == 10:
                reading = meter.read(split=True)
                if world.is_main:
                    report.add(reading.splits, reading.split_steps, 0)
                    found += map(str, ranks.add(reading.splits, 0))
        return found, report.document()["time"]["ranks"]

    (found, (first, second)), _ = on_ranks(2, train)
    assert [line.partition(",")[0] for line in found] == [f"rank 1 on node 0 is {said}"]
    assert (first["data_s"], first["compute_s"]) == (0, 5)
    assert first["wait_s"] == 40 * (compute + data - 0.125)
    assert (second["data_s"], second["compute_s"], second["wait_s"]) == (40 * data, 40 * compute, 0)


def test_batches_come_in_their_order_and_the_next_one_is_on_its_way() -> None:
    events: list[str] = []

    def note(what: str, batch: int) -> int:
        events.append(f"{what} {batch}")
        return batch

    ahead = one_ahead(iter(range(3)), lambda batch: note("start", batch), lambda batch: note("finish", batch))
    assert list(ahead) == [0, 1, 2]
    assert events == ["start 0", "start 1", "finish 0", "start 2", "finish 1", "finish 2"]
    assert not list(one_ahead(iter(()), lambda batch: batch, lambda batch: batch))


def test_what_a_gpu_waits_for_is_the_time_between_its_step_and_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, came = Clock(), list[float]()

    class Event:
        """An event on a stream whose work is done at once."""

        def record(self) -> None:
            self.at = clock.passed

        def query(self) -> bool:
            return True

        def elapsed_time(self, later: Event) -> float:
            return 1000 * (later.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event())
    monkeypatch.setattr(device_copies, "note_progress", lambda: came.append(clock.passed))
    timer = data_timer(torch.device("cuda"))
    for _ in timer.watch(clock.batches(3, 2)):
        clock.compute(1)
    assert timer.seconds == 6
    assert came == [2, 5, 8], "a batch that comes shows that the rank does not hang"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_gets_what_was_read() -> None:
    device = torch.device("cuda")
    batches = [(torch.full((1000, 1000), number).pin_memory(), torch.arange(number)) for number in range(8)]
    for number, (rows, labels) in enumerate(data_timer(device).watch(copy_ahead(iter(batches), device))):
        assert (rows.float() @ rows.float()).min() == 1000 * number**2
        assert labels.tolist() == list(range(number))


def test_a_report_has_seconds_for_each_step_and_shares() -> None:
    class Nodes:
        local_world_size = 1

    report = TimeReport(Nodes())  # type: ignore[arg-type]  # this is all that it asks of the world
    numbers, _ = report.add([TimeSplit(1, 2, 1, 0), TimeSplit(3, 4, 1, 0)], steps=2, step=2)
    assert (numbers["time/data_s"], numbers["time/data_s_min"], numbers["time/data_s_max"]) == (1, 0.5, 1.5)
    assert numbers["time/compute_share"] == 0.5
    assert report.end_epoch() == ["time data 33%, compute 50%, wait 17%, save 0%"]
    assert not report.end_epoch()
    assert report.document()["time"]["ranks"][1]["node"] == 1
