"""Turn images, arrays or tables into a prepared dataset: on each node local_rank 0 works, the other ranks wait.

Every node works out the same plan from the labels and the seed. Shard i of the plan belongs to node i % nodes, so the
files are the same whatever the number of nodes and ranks; the index is written last.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.arguments import Parser
from shared.data import Array, Index, Target
from shared.data.dataset.index import SPLITS
from shared.data.sources import SOURCES, BadFiles, Request, Source
from shared.data.write import remove_leftovers, write_index, write_skipped
from shared.data.write.arguments import add_arguments, left_out, problems_of
from shared.data.write.moments import Moments
from shared.data.write.progress import Progress
from shared.data.write.request import list_names
from shared.data.write.shards import WrittenShard, item_arrays, plan_items, write_shards
from shared.distributed import Refusal, World, init


def main() -> None:
    """Prepare the dataset that the command line asks for."""
    arguments = parser().parse_args()
    with init(timeout=timedelta(minutes=arguments.init_timeout)) as world:
        check(arguments)
        output: Path = arguments.output_data
        step_timeout = timedelta(minutes=arguments.step_timeout)

        world.once(lambda: remove_leftovers(output), name="leftovers", scope="job", timeout=step_timeout)
        part = world.once(lambda: prepare(arguments, world), name="shards", timeout=step_timeout)
        parts = world.gather(part if world.local_rank == 0 else None, name="parts")
        text = world.once(lambda: conclude(output, [p for p in parts if p], arguments), name="index", scope="job")
        world.note(text)


def parser() -> argparse.ArgumentParser:
    """The arguments, as `component.yaml` gives them."""
    result = Parser(description=__doc__)
    add = result.add_argument
    add("--data", type=Path, help="folder with the user's files")
    add("--dataset", choices=tuple(SOURCES), default="digits")
    add("--task", choices=("classification", "regression"), default="classification")
    add("--target", default="target", help="column of a table that is predicted")
    add("--ignore-columns", help="columns of a table that are left out, separated by commas")
    add("--on-missing", choices=("fail", "skip"), default="fail")
    add("--image-size", type=int, help="side in pixels; needed when images differ in size")
    add("--color", choices=("auto", "grayscale", "rgb"), default="auto")
    add("--max-megapixels", type=int, default=64, help="images of more million pixels are bad files")
    add_arguments(result, test_fraction=0.2)
    return result


def check(arguments: argparse.Namespace) -> None:
    """Refuse values that make no sense, all of them at once."""
    problems = problems_of(arguments)
    for name in ("image_size", "max_megapixels"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            problems.append(f"{name} {value}: 1 or more is needed.")
    if problems:
        raise Refusal("\n".join(problems))


def prepare(arguments: argparse.Namespace, world: World) -> dict[str, Any]:
    """Do a node's part: open the source, write the node's shards, and say what was done."""
    bad = BadFiles(skip=arguments.on_bad_file == "skip")
    source = SOURCES[arguments.dataset](request(arguments, bad, world))
    plan = plan_items(
        source,
        validation_fraction=arguments.validation_fraction,
        test_fraction=arguments.test_fraction,
        seed=arguments.seed,
        rows_per_shard=arguments.rows_per_shard,
    )
    mine = plan.jobs[world.node_rank :: world.num_nodes]
    with Progress(world, sum(job.rows for job in mine)) as progress:
        written = []
        trained = np.zeros(len(source.classes), np.int64)
        for job, done in zip(mine, write_shards(source, plan, mine, arguments.output_data, bad), strict=True):
            written.append(done.to_json())
            progress.add(job.rows)
            if job.split == "train" and source.classes:
                trained += count_classes(source, plan.items_of(job)) - count_classes(source, [b.item for b in done.bad])
    skipped = [asdict(file) for file in bad.found]
    return {**description(source), "trained": trained.tolist(), "bad": skipped, "shards": written}


def count_classes(source: Source, items: Any) -> npt.NDArray[np.int64]:
    """Number of items in each class."""
    return np.bincount(source.labels[np.asarray(items, np.int64)], minlength=len(source.classes))


def request(arguments: argparse.Namespace, bad: BadFiles, world: World) -> Request:
    """What the source is asked for."""
    ignored = (arguments.ignore_columns or "").split(",")
    return Request(
        dataset=arguments.dataset,
        folder=arguments.data,
        image_size=arguments.image_size,
        color=arguments.color,
        max_megapixels=arguments.max_megapixels,
        task=arguments.task,
        target=arguments.target,
        ignore_columns=tuple(name.strip() for name in ignored if name.strip()),
        skip_missing=arguments.on_missing == "skip",
        bad=bad,
        note=world.note,
    )


def description(source: Source) -> dict[str, Any]:
    """What the index says about a source, as JSON."""
    return {
        "task": source.task,
        "classes": source.classes,
        "columns": source.columns,
        "arrays": {name: asdict(array) for name, array in item_arrays(source).items()},
    }


def conclude(output: Path, parts: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """Put the parts of all nodes together: write the index, and give a line or more on what was prepared."""
    first = parts[0]
    arrays = {name: Array(tuple(array["shape"]), array["dtype"]) for name, array in first["arrays"].items()}
    written = [WrittenShard.from_json(record, arrays) for part in parts for record in part["shards"]]
    written.sort(key=lambda one: (SPLITS.index(one.split), one.number))
    skipped = [(bad["path"], bad["reason"]) for bad in first["bad"]]
    skipped += sorted((bad.path, bad.reason) for one in written for bad in one.bad)
    refuse_lost_classes(parts)
    index = make_index(first, arrays, written, arguments.target)
    if skipped:
        write_skipped(output, skipped)
    write_index(output, index)
    return "\n".join([*left_out(skipped, "files"), summary(index, arguments.dataset)])


def refuse_lost_classes(parts: list[dict[str, Any]]) -> None:
    """Refuse to go on without a class, all of whose files for train were left out."""
    trained = np.sum([part["trained"] for part in parts], axis=0)
    lost = [name for name, rows in zip(parts[0]["classes"], trained, strict=True) if rows == 0]
    if lost:
        raise Refusal(
            f"no file of {list_names(lost)} that would go into train can be used: a class would be lost. Repair the "
            "files, or remove what belongs to the class."
        )


def make_index(source: dict[str, Any], arrays: dict[str, Array], written: list[WrittenShard], target: str) -> Index:
    """The index of shards that are in order; their moments are merged in that order."""
    train = [one for one in written if one.split == "train"]
    of_x = [one.moments for one in train if one.moments is not None]
    of_y = [one.target for one in train if one.target is not None]
    statistics = Moments.merge(of_y).statistics() if of_y else None
    return Index(
        task=source["task"],
        arrays=arrays,
        classes=tuple(source["classes"]),
        statistics=Moments.merge(of_x).statistics(),
        splits={
            split: tuple(one.shard for one in written if one.split == split and one.shard is not None)
            for split in SPLITS
        },
        columns=tuple(source["columns"]),
        target=Target(target, statistics.mean[0], statistics.std[0]) if statistics else None,
    )


def summary(index: Index, dataset: str) -> str:
    """One line on what was prepared."""
    x = index.arrays["x"]
    rows = ", ".join(f"{split} {index.rows(split)}" for split in SPLITS)
    what = f"{len(index.classes)} classes" if index.target is None else f"target {index.target.name}"
    return f"prepared {dataset}: {rows} rows of {x.dtype} {x.shape}, {what}"


if __name__ == "__main__":
    main()
