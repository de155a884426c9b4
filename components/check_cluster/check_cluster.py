"""Before money is spent: does every rank reach every other, how fast, and are all machines alike?

Ranks that never start are named when the world is joined; a rank that dies or hangs later, by whatever waits for it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from shared.cluster import AllReduce, ClusterSurvey, RankPair, describe_machine, find_problems, write_survey
from shared.cluster.transport import Transport, open_transport
from shared.distributed import Refusal, World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, input_port, output_port, settings_class
from shared.settings.running import TimeoutSettings
from shared.tracking import Tracker

PAIR_BYTES = 1 << 20  # what each pair exchanges


@settings_class
class Settings:
    """The inputs and outputs of this component; component.yaml is written from them."""

    transport: Literal["auto", "mpi"] = input_port(
        "What carries the data. auto is NCCL on GPUs and gloo without; mpi measures MPI itself, in a step with the mpi "
        "distribution.",
        default="auto",
    )
    max_megabytes: float = input_port(
        "The largest message, in megabytes; messages grow from 4 bytes up to it by a factor of four.",
        default=256,
        least=0.001,
        most=4096,
    )
    repeats: int = input_port("How often each size is measured; the median counts.", default=10, least=1, most=1000)
    fail_on_problem: bool = input_port(
        "Whether the step fails when something is wrong, so that the training behind it does not start.", default=True
    )
    timeouts: TimeoutSettings = changed_group(
        init_timeout=change(
            "Minutes in which all ranks have to have started; after that those that have not are named.", default=5
        ),
        step_timeout=change("Minutes after which a rank that does not answer is given up.", default=2, most=1440),
    )
    report: Path = output_port("index.html with the verdict, cluster.json, all_reduce.csv, pairs.csv, all_reduce.png.")


def main() -> None:
    """Survey the cluster that this step runs on."""
    settings = read_settings(Settings, __doc__)
    timeout = min(settings.timeouts.start, settings.timeouts.step)
    framework = None if settings.transport == "mpi" else "torch"
    with init(framework, timeout=timeout) as world, Tracker(world) as tracker:
        transport = open_transport(settings.transport, world)
        machines = world.gather(describe_machine(world), name="machines")
        world.note(f"{world.world_size} ranks on {world.num_nodes} nodes, {transport.name}")

        pairs = exchange_with_all(transport, world)
        sizes = message_sizes(settings.max_megabytes)
        measured = [measure_all_reduce(transport, world, size, settings.repeats) for size in sizes]

        survey = ClusterSurvey(transport.name, machines, pairs, measured, find_problems(machines, pairs))
        world.once(lambda: write_survey(settings.report, survey), name="report", scope="job", timeout=timeout)
        tracker.log(survey.numbers(), step=0)
        world.note(survey.verdict())
        if survey.problems and settings.fail_on_problem:
            raise Refusal("\n".join(survey.problems))


def message_sizes(max_megabytes: float) -> list[int]:
    """Bytes: 4, 16, 64 ... up to the largest, which is always there."""
    largest = max(4, int(max_megabytes * 1e6) // 4 * 4)
    sizes = [4**power for power in range(1, 20) if 4**power < largest]
    return [*sizes, largest]


def partners_by_round(rank: int, world_size: int) -> list[int | None]:
    """Whom a rank meets in each round, so that everybody meets everybody and nobody twice; None sits a round out.

    The circle method of tournaments: the last seat stays, the others move on by one each round.
    """
    seats = world_size + world_size % 2
    found: list[int | None] = []
    for turn in range(seats - 1):
        circle = [(turn + place) % (seats - 1) for place in range(seats - 1)] + [seats - 1]
        partner = circle[seats - 1 - circle.index(rank)]
        found.append(partner if partner < world_size else None)
    return found


def exchange_with_all(transport: Transport, world: World) -> list[RankPair]:
    """Exchange a megabyte in each pair of ranks, one partner at a time; every rank gets all results."""
    mine = []
    for partner in partners_by_round(world.rank, world.world_size):
        if partner is None:
            continue
        started = time.perf_counter()
        try:
            transport.exchange(partner, PAIR_BYTES)
            error = ""
        except (RuntimeError, OSError) as problem:
            error = " ".join(str(problem).split())[:200] or type(problem).__name__
        seconds = time.perf_counter() - started
        if world.rank < partner or error:
            mine.append(asdict(RankPair(world.rank, partner, seconds, error)))
    everybody = world.gather(mine, name="pairs")
    return [RankPair(**record) for records in everybody for record in records]


def measure_all_reduce(transport: Transport, world: World, size: int, repeats: int) -> AllReduce:
    """The median time of an all-reduce of this many bytes, on the rank on which it took longest."""
    transport.all_reduce(size)  # the first one makes connections and buffers
    times = []
    for _ in range(max(1, repeats if size < 1 << 24 else repeats // 3)):
        world.barrier(f"all-reduce {size}")
        started = time.perf_counter()
        transport.all_reduce(size)
        times.append(time.perf_counter() - started)
    slowest = max(world.gather(statistics.median(times), name=f"times {size}"))
    return AllReduce.of(size, slowest, world.world_size)


if __name__ == "__main__":
    main()
