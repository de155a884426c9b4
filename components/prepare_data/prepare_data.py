"""Turn images or arrays into a prepared dataset: on each node local_rank 0 works, the other ranks wait.

Every rank works out the same plan from the labels and the seed. Shard i of the plan belongs to node i % nodes, so the
files are the same whatever the number of nodes and ranks; the index is written last.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.data import Array, Index, Shard, remove_leftovers, write_index, write_shard
from shared.data.index import SPLITS, shard_from_json, shard_to_json
from shared.data.moments import Moments
from shared.data.order import Rows
from shared.data.sources import SOURCES, Request, Source
from shared.data.splits import stratified_split
from shared.distributed import Refusal, init

CHUNK = 256  # rows in memory at a time; part of the result, because sums are made chunk by chunk
WORTH_PROCESSES = 2_000  # images to decode, below which starting worker processes costs more than it saves
LABEL = Array((), "int64")


def main() -> None:
    """Prepare the dataset that the command line asks for."""
    arguments = parser().parse_args()
    with init(timeout=timedelta(minutes=arguments.init_timeout)) as world:
        check(arguments)
        source = SOURCES[arguments.dataset](request(arguments))
        plan = make_plan(source, arguments)
        step_timeout = timedelta(minutes=arguments.step_timeout)
        output: Path = arguments.output_data

        world.once(lambda: remove_leftovers(output), name="leftovers", scope="job", timeout=step_timeout)
        mine = plan[world.node_rank :: world.num_nodes]
        records = world.once(lambda: prepare(source, mine, output), name="shards", timeout=step_timeout)

        all_records = world.gather(records if world.local_rank == 0 else [], name="records")
        index = make_index(source, plan, [record for node in all_records for record in node])
        world.once(lambda: write_index(output, index), name="index", scope="job")
        world.note(summary(index, arguments.dataset))


def parser() -> argparse.ArgumentParser:
    """The arguments, as `component.yaml` gives them."""
    result = argparse.ArgumentParser(description=__doc__)
    result.add_argument("--data", type=Path, help="folder with the user's files")
    result.add_argument("--dataset", choices=tuple(SOURCES), default="digits")
    result.add_argument("--validation-fraction", type=float, default=0.1)
    result.add_argument("--test-fraction", type=float, default=0.2)
    result.add_argument("--seed", type=int, default=0)
    result.add_argument("--rows-per-shard", type=int, default=2048)
    result.add_argument("--image-size", type=int, help="side in pixels; needed when images differ in size")
    result.add_argument("--color", choices=("grayscale", "rgb"), default="rgb")
    result.add_argument("--init-timeout", type=float, default=10.0, help="minutes")
    result.add_argument("--step-timeout", type=float, default=240.0, help="minutes")
    result.add_argument("--output-data", type=Path, required=True)
    return result


def check(arguments: argparse.Namespace) -> None:
    """Refuse values that make no sense, all of them at once."""
    validation, test = arguments.validation_fraction, arguments.test_fraction
    problems = []
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        problems.append(
            f"validation_fraction {validation} + test_fraction {test} = {validation + test:g}: "
            "each lies between 0 and 1, and together they leave a part below 1 for train."
        )
    if arguments.seed < 0:
        problems.append(f"seed {arguments.seed}: 0 or more is needed.")
    if arguments.rows_per_shard < 1:
        problems.append(f"rows_per_shard {arguments.rows_per_shard}: 1 or more is needed.")
    if arguments.image_size is not None and arguments.image_size < 1:
        problems.append(f"image_size {arguments.image_size}: 1 pixel or more is needed.")
    if problems:
        raise Refusal("\n".join(problems))


def request(arguments: argparse.Namespace) -> Request:
    """What the source is asked for."""
    return Request(arguments.dataset, arguments.data, arguments.image_size, arguments.color)


@dataclass(frozen=True, slots=True)
class Job:
    """A shard to be written: its split, its number there, and its items in the source."""

    split: str
    number: int
    items: Rows


def make_plan(source: Source, arguments: argparse.Namespace) -> list[Job]:
    """Every shard of the dataset, in order: the same on every rank."""
    splits = stratified_split(
        source.labels,
        validation_fraction=arguments.validation_fraction,
        test_fraction=arguments.test_fraction,
        seed=arguments.seed,
    )
    size = arguments.rows_per_shard
    return [
        Job(split, number, items[start : start + size])
        for split, items in splits.items()
        for number, start in enumerate(range(0, len(items), size))
    ]


@dataclass(frozen=True, slots=True)
class Written:
    """A shard that was written, and the moments of its rows."""

    split: str
    number: int
    shard: Shard
    moments: Moments

    def to_json(self) -> dict[str, Any]:
        """For the other nodes."""
        return {**asdict(self), "shard": shard_to_json(self.shard)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], arrays: Mapping[str, Array]) -> Written:
        """The way back."""
        moments = record["moments"]
        return cls(
            split=record["split"],
            number=record["number"],
            shard=shard_from_json(record["shard"], arrays),
            moments=Moments(moments["count"], tuple(moments["sum"]), tuple(moments["squares"])),
        )


def prepare(source: Source, jobs: list[Job], output: Path) -> list[dict[str, Any]]:
    """Write a node's shards, with all of its cores where there is enough to decode, and return their records."""
    cores = len(os.sched_getaffinity(0))
    images = sum(len(job.items) for job in jobs)
    if not source.decodes or images < WORTH_PROCESSES or min(cores, len(jobs)) < 2:
        return [write(source, job, output).to_json() for job in jobs]
    with ProcessPoolExecutor(
        min(cores, len(jobs)),
        # Not fork: the control plane's threads are running in this process.
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start_worker,
        initargs=(source, output),
    ) as pool:
        return [written.to_json() for written in pool.map(_write_in_worker, jobs)]


def write(source: Source, job: Job, output: Path) -> Written:
    """Write one shard, reading its items chunk by chunk."""
    moments: list[Moments] = []

    def chunks() -> Iterator[dict[str, Any]]:
        for start in range(0, len(job.items), CHUNK):
            items = job.items[start : start + CHUNK]
            x = source.read(items)
            moments.append(Moments.of(x))
            yield {"x": x, "y": source.labels[items]}

    rows, arrays = len(job.items), arrays_of(source)
    shard = write_shard(output, job.split, job.number, rows=rows, arrays=arrays, chunks=chunks())
    return Written(job.split, job.number, shard, Moments.merge(moments))


_worker: tuple[Source, Path]  # in a worker process: sent once, not with every shard


def _start_worker(source: Source, output: Path) -> None:
    global _worker  # noqa: PLW0603  # the way to keep something in a pool's worker
    _worker = source, output
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker waits for work for ever when the rank that it works for was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_in_worker(job: Job) -> Written:
    source, output = _worker
    return write(source, job, output)


def arrays_of(source: Source) -> dict[str, Array]:
    """The dataset's arrays: the rows, and a label for each."""
    return {"x": source.array, "y": LABEL}


def make_index(source: Source, plan: list[Job], records: list[dict[str, Any]]) -> Index:
    """Put the records of all nodes in the plan's order, and merge their moments in that order."""
    arrays = arrays_of(source)
    written = {(w.split, w.number): w for w in (Written.from_json(record, arrays) for record in records)}
    in_order = [written[job.split, job.number] for job in plan]
    return Index(
        task="classification",
        arrays=arrays,
        classes=source.classes,
        statistics=Moments.merge(w.moments for w in in_order if w.split == "train").statistics(),
        splits={split: tuple(w.shard for w in in_order if w.split == split) for split in SPLITS},
    )


def summary(index: Index, dataset: str) -> str:
    """One line on what was prepared."""
    x = index.arrays["x"]
    rows = ", ".join(f"{split} {index.rows(split)}" for split in SPLITS)
    return f"prepared {dataset}: {rows} rows of {x.dtype} {x.shape}, {len(index.classes)} classes"


if __name__ == "__main__":
    main()
