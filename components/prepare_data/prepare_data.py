"""Turn images, arrays or tables into a prepared dataset: on each node local_rank 0 works, the other ranks wait.

Every node works out the same plan from the labels and the seed. Shard i of the plan belongs to node i % nodes, so the
files are the same whatever the number of nodes and ranks; the index is written last.
"""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shared.data import Array, Index, Statistics, Target
from shared.data.dataset.encodings import TableEncoding
from shared.data.dataset.index import SPLITS
from shared.data.sources import SOURCES, BadFiles, ItemSource, SourceRequest
from shared.data.write import remove_leftovers, write_index, write_skipped
from shared.data.write.moments import Moments
from shared.data.write.request import describe_skipped, list_names
from shared.data.write.shards import WrittenShard, item_arrays, plan_items, write_shards
from shared.distributed import Refusal, World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, input_port, output_port, range_problems, settings_class
from shared.settings.preparing import SourceSettings, SplitSettings, StorageSettings
from shared.settings.running import TimeoutSettings
from shared.tracking import PreparationProgress


@settings_class
class Settings:
    """The inputs and outputs of this component; component.yaml is written from them."""

    source: SourceSettings = changed_group(
        data=change(
            "Folder with your files. image_folder: one folder of images for each class. npy: x.npy with the rows "
            "and y.npy with their labels or targets. csv, parquet: one table, in one file or several. Leave empty for "
            "digits."
        ),
        dataset=change(
            "What is read. digits is a built-in sample of 1,797 handwritten digits of 8x8 pixels; the others read "
            "data. All files are taken together and split anew.",
            default="digits",
            choices=tuple(SOURCES),
        ),
    )
    task: Literal["classification", "regression"] = input_port(
        "What is predicted: a class, or a number. regression is for csv, parquet and npy.", default="classification"
    )
    target: str = input_port(
        "For csv and parquet: the column that is predicted. Classes are texts or numbers. All other columns are "
        "features: numbers, or categories if they hold texts.",
        default="target",
    )
    ignore_columns: str | None = input_port(
        "For csv and parquet: columns that are left out, separated by commas, such as an identifier or a text.",
        default=None,
    )
    categorical_columns: str | None = input_port(
        "For csv and parquet: columns that are categories though they hold numbers, such as a code, or texts and "
        "numbers, separated by commas. Columns of texts alone are categories without being named.",
        default=None,
    )
    missing_values: str | None = input_port(
        "For csv and parquet: what stands for a missing value, separated by commas, such as ?,-999. Empty cells and "
        "NA, N/A, NaN, null and None do without being named; !NA makes NA a value.",
        default=None,
    )
    on_missing: Literal["fail", "skip", "impute"] = input_port(
        "For csv and parquet, when a row lacks a value: fail stops and names file, line and column; skip leaves the "
        "row out; impute gives a number the mean of train and a feature that says so, makes a category of its own "
        "of missing texts, and leaves out rows that lack the target.",
        default="fail",
    )
    image_size: int | None = input_port(
        "For image_folder: side in pixels to which images are brought, scaled and then cropped around "
        "the centre. Needed when they differ in size.",
        default=None,
        least=1,
        most=4096,
    )
    color: Literal["auto", "grayscale", "rgb"] = input_port(
        "For image_folder: channels of the images, one (grayscale) or three (rgb). auto is rgb.",
        default="auto",
    )
    max_megapixels: int = input_port(
        "Images of more than this many million pixels are bad files. They are not decoded: a small file can unpack to "
        "more than the memory holds.",
        default=64,
        least=1,
        most=10000,
    )
    storage: StorageSettings
    splits: SplitSettings
    timeouts: TimeoutSettings = changed_group(
        step_timeout=change("Minutes that the waiting ranks give to the one that does the work.", default=240)
    )
    output_data: Path = output_port(
        "The prepared dataset, index.json and shards (and skipped.csv if files were left out), for the input data of a "
        "trainer and of Evaluate.",
        mode="rw_mount",
        yaml_name="data",
    )


def main() -> None:
    """Prepare the dataset that the command line asks for."""
    settings = read_settings(Settings, __doc__, check_ranges=False)
    with init(timeout=settings.timeouts.start) as world:
        refuse_problems(settings)
        output, step_timeout = settings.output_data, settings.timeouts.step

        world.once(lambda: remove_leftovers(output), name="leftovers", scope="job", timeout=step_timeout)
        mine: list[dict[str, Any]] = []  # moments of thousands of columns in many shards: more than a message takes
        world.once(lambda: mine.append(prepare_shards(settings, world)), name="shards", timeout=step_timeout)
        parts = [part for of_rank in world.collect_in_rounds(mine, "parts") or () for part in of_rank]
        text = world.once(lambda: conclude_dataset(settings, parts), name="index", scope="job", timeout=step_timeout)
        world.note(text)


def refuse_problems(settings: Settings) -> None:
    """Refuse values that make no sense, all of them at once."""
    of_storage = settings.storage.problems(settings.source.dataset, settings.image_size)
    if problems := [*range_problems(settings), *settings.splits.problems(), *of_storage]:
        raise Refusal("\n".join(problems))


def prepare_shards(settings: Settings, world: World) -> dict[str, Any]:
    """Do a node's part: open the source, write the node's shards, and say what was done."""
    splits, bad = settings.splits, BadFiles(skip=settings.splits.skip_bad)
    opened = SOURCES[settings.source.dataset](source_request(settings, bad, world))
    plan = plan_items(
        opened,
        validation_fraction=splits.validation_fraction,
        test_fraction=splits.test_fraction,
        seed=splits.seed,
        rows_per_shard=splits.rows_per_shard,
    )
    source, mine = plan.source, plan.jobs[world.node_rank :: world.num_nodes]
    with PreparationProgress(world, sum(job.rows for job in mine)) as progress:
        written = []
        trained = np.zeros(len(source.classes), np.int64)
        for job, done in zip(mine, write_shards(source, plan, mine, settings.output_data, bad), strict=True):
            written.append(asdict(done))
            progress.add(job.rows)
            if job.split == "train" and source.classes:
                trained += count_classes(source, plan.items_of(job))
                trained -= count_classes(source, [file.item for file in done.bad])
    skipped = [asdict(file) for file in bad.found]
    return {**describe_source(source), "trained": trained.tolist(), "bad": skipped, "shards": written}


def count_classes(source: ItemSource, items: Any) -> npt.NDArray[np.int64]:
    """Number of items in each class."""
    return np.bincount(source.labels[np.asarray(items, np.int64)], minlength=len(source.classes))


def source_request(settings: Settings, bad: BadFiles, world: World) -> SourceRequest:
    """What the source is asked for."""
    return SourceRequest(
        dataset=settings.source.dataset,
        folder=settings.source.data,
        image_size=settings.image_size,
        color=settings.color,
        max_megapixels=settings.max_megapixels,
        keeps_encoded=settings.storage.keeps_encoded,
        encoded_size=settings.storage.encoded_size,
        task=settings.task,
        target=settings.target,
        ignore_columns=split_names(settings.ignore_columns),
        categorical_columns=split_names(settings.categorical_columns),
        missing_values=split_names(settings.missing_values),
        skip_missing=settings.on_missing == "skip",
        impute_missing=settings.on_missing == "impute",
        bad=bad,
        note=world.note,
    )


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the parts of an input with commas; one that has a comma itself stands in double quotes."""
    parts = next(csv.reader([text or ""], skipinitialspace=True), [])
    return tuple(name.strip() for name in parts if name.strip())


def describe_source(source: ItemSource) -> dict[str, Any]:
    """What the index says about a source, as JSON."""
    return {
        "task": source.task,
        "classes": source.classes,
        "columns": source.columns,
        "table": source.table.to_json() if source.table else None,
        "arrays": {name: asdict(array) for name, array in item_arrays(source).items()},
    }


def conclude_dataset(settings: Settings, parts: list[dict[str, Any]]) -> str:
    """Put the parts of all nodes together: write the index, and give a line or more on what was prepared."""
    first, output = parts[0], settings.output_data
    arrays = {name: Array(**{**array, "shape": tuple(array["shape"])}) for name, array in first["arrays"].items()}
    written = [WrittenShard.from_json(record, arrays) for part in parts for record in part["shards"]]
    written.sort(key=lambda one: (SPLITS.index(one.split), one.number))
    skipped = [(bad["path"], bad["reason"]) for bad in first["bad"]]
    skipped += sorted((bad.path, bad.reason) for one in written for bad in one.bad)
    refuse_lost_classes(parts)
    index = make_index(first, arrays, written, settings.target)
    if skipped:
        write_skipped(output, skipped)
    write_index(output, index)
    lines = [*describe_skipped(skipped, "files"), *constant_lines(index), summary_line(index, settings.source.dataset)]
    return "\n".join(lines)


def constant_lines(index: Index) -> list[str]:
    """Name the columns of a table that have one value in train."""
    if index.table is None or index.statistics is None:
        return []
    # The features for missing numbers are last.
    columns = zip(index.table.columns, index.statistics.std, strict=False)
    same = [c.name for c, std in columns if (std == 0 if c.values is None else len(c.values) == 1)]
    return [f"one value in the whole of train, from which nothing is learnt: {list_names(same)}"] if same else []


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
    target_statistics = Moments.merge(of_y).statistics() if of_y else None
    table = TableEncoding.from_json(source["table"]) if source["table"] else None
    return Index(
        task=source["task"],
        arrays=arrays,
        classes=tuple(source["classes"]),
        statistics=plain_codes(Moments.merge(of_x).statistics(), table),
        splits={
            split: tuple(one.shard for one in written if one.split == split and one.shard is not None)
            for split in SPLITS
        },
        columns=tuple(source["columns"]),
        target=Target(target, target_statistics.mean[0], target_statistics.std[0]) if target_statistics else None,
        table=table,
        picture_bytes={
            split: sum(one.picture_bytes for one in written if one.split == split)
            for split in SPLITS
            if arrays["x"].is_encoded
        },
    )


def plain_codes(statistics: Statistics, table: TableEncoding | None) -> Statistics:
    """Statistics that leave the codes of categories as they are, which have no mean."""
    mean, std = list(statistics.mean), list(statistics.std)
    for number in table.categories if table else ():
        mean[number], std[number] = 0.0, 1.0
    return Statistics(tuple(mean), tuple(std))


def summary_line(index: Index, dataset: str) -> str:
    """One line on what was prepared."""
    x = index.arrays["x"]
    rows = ", ".join(f"{split} {index.rows(split)}" for split in SPLITS)
    what = f"{len(index.classes)} classes" if index.target is None else f"target {index.target.name}"
    kept = f", encoded in {sum(index.picture_bytes.values()) / 1e6:.1f} MB" if x.is_encoded else ""
    return f"prepared {dataset}: {rows} rows of {x.dtype} {x.shape}, {what}{kept}"


if __name__ == "__main__":
    main()
