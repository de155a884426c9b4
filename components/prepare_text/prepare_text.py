"""Turn texts into a prepared dataset of tokens: on each node local_rank 0 works, the other ranks wait.

The data's units depend on the data alone; each node takes a contiguous range of them. It first turns its units into
tokens, then all nodes tell each other how many there are, and each writes the shards of its units: the same files
whatever the number of nodes and ranks. The index is written last.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.arguments import Parser
from shared.data import Index
from shared.data.dataset.index import BYTES, SPLITS, shard_from_json, shard_to_json
from shared.data.text.documents import Documents
from shared.data.text.encode import Encoded, Settings, encode_units
from shared.data.text.found import Found
from shared.data.text.shards import Node, Writer, plan_tokens, token_arrays
from shared.data.text.sources import TEXT_SOURCES, texts_to_learn_from
from shared.data.text.tokens import SMALLEST, Bytes, Subwords, Tokens, train_subwords
from shared.data.write import remove_leftovers, write_index, write_skipped, write_tokenizer
from shared.data.write.arguments import add_arguments, left_out, problems_of
from shared.data.write.progress import Progress
from shared.data.write.request import BadFiles, Request
from shared.data.write.splits import Splitter
from shared.distributed import Refusal, World, init


def main() -> None:
    """Prepare the dataset that the command line asks for."""
    arguments = parser().parse_args()
    with init(timeout=timedelta(minutes=arguments.init_timeout)) as world:
        check(arguments)
        output: Path = arguments.output_data
        step_timeout = timedelta(minutes=arguments.step_timeout)
        work = Preparation(arguments, world)

        world.once(lambda: remove_leftovers(output), name="leftovers", scope="job", timeout=step_timeout)
        learnt = world.once(work.learn, name="tokenizer", scope="job", timeout=step_timeout)
        found = world.once(lambda: work.read(learnt), name="tokens", timeout=step_timeout)
        nodes = world.gather(found if world.local_rank == 0 else None, name="found")
        written = world.once(lambda: work.write([n for n in nodes if n]), name="shards", timeout=step_timeout)
        shards = world.gather(written if world.local_rank == 0 else None, name="written")
        text = world.once(lambda: work.conclude([s for s in shards if s]), name="index", scope="job")
        world.note(text)


def parser() -> argparse.ArgumentParser:
    """The arguments, as `component.yaml` gives them."""
    result = Parser(description=__doc__)
    add = result.add_argument
    add("--data", type=Path, help="the user's files")
    add("--dataset", choices=tuple(TEXT_SOURCES), default="stdlib")
    add("--task", choices=("language_modeling", "text_classification"), default="language_modeling")
    add("--text-column", default="text")
    add("--label-column", default="label")
    add("--pattern", default="*", help="names of files, separated by commas")
    add("--tokenizer", type=Path, help="folder with tokenizer.json; without it, bytes")
    add("--vocabulary", type=int, help="learn so many tokens from the train split")
    add("--sequence-length", type=int, default=256, help="tokens")
    add("--max-megabytes", type=float, default=16.0, help="larger documents are bad ones")
    add_arguments(result, test_fraction=0.1)
    return result


def check(arguments: argparse.Namespace) -> None:
    """Refuse values that make no sense, all of them at once."""
    problems = problems_of(arguments)
    if arguments.sequence_length < 2:
        problems.append(f"sequence_length {arguments.sequence_length}: 2 or more is needed.")
    if not 0 < arguments.max_megabytes <= 1024:
        problems.append(f"max_megabytes {arguments.max_megabytes:g}: above 0 and up to 1024 is possible.")
    if arguments.vocabulary is not None and not SMALLEST <= arguments.vocabulary <= 2**20:
        problems.append(f"vocabulary {arguments.vocabulary}: {SMALLEST} to {2**20} tokens can be learnt.")
    if arguments.pattern != "*" and arguments.dataset != "files":
        problems.append(f"pattern {arguments.pattern!r} is for dataset files; {arguments.dataset} has none.")
    if problems:
        raise Refusal("\n".join(problems))


class Preparation:
    """What the leaders of the nodes do, and what they keep from one part to the next."""

    def __init__(self, arguments: argparse.Namespace, world: World) -> None:
        self._arguments, self._world = arguments, world
        self._labelled = arguments.task == "text_classification"
        self._bad = BadFiles(skip=arguments.on_bad_file == "skip")
        self._encoded: list[Encoded] = []

    def learn(self) -> dict[str, str]:
        """Learn a tokenizer where a vocabulary is asked for and none is given: its files by name."""
        if self._arguments.vocabulary is None or self._arguments.tokenizer is not None:
            return {}
        return train_subwords(texts_to_learn_from(self._open(BadFiles(skip=True))), self._arguments.vocabulary)

    def read(self, learnt: dict[str, str]) -> dict[str, Any]:
        """Turn the node's units into tokens, and say what there is."""
        world = self._world
        self._settings = Settings(self._tokens(learnt), self._arguments.sequence_length, self._labelled)
        source = self._open(self._bad)
        count = len(source.sizes)
        mine = range(count * world.node_rank // world.num_nodes, count * (world.node_rank + 1) // world.num_nodes)
        with Progress(world, sum(source.sizes[unit] for unit in mine), "bytes") as progress:
            self._encoded = list(encode_units(source, mine, self._settings, self._bad, progress.reach))
        bad = self._bad.found if world.node_rank == 0 else ()  # what every node meets in opening the source
        return Node.of(self._encoded, bad, self._settings, source).to_json()

    def write(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write the shards of the node's units, if what all nodes found makes a dataset."""
        arguments, world = self._arguments, self._world
        self._found = Found([Node.from_json(node) for node in nodes], self._settings)
        self._found.refuse({"validation": arguments.validation_fraction, "test": arguments.test_fraction})
        plan = plan_tokens(self._found.units, self._settings, arguments.rows_per_shard)
        classes = self._found.classes
        writer = Writer(
            arguments.output_data, self._encoded, self._found.nodes, world.node_rank, classes, self._settings
        )
        written = []
        mine = [job for job in plan if job.unit in writer.units]
        with Progress(world, sum(job.rows for job in mine)) as progress:
            for job in mine:
                written.append({"split": job.split, "number": job.number, "shard": shard_to_json(writer.write(job))})
                progress.add(job.rows)
        return written

    def conclude(self, parts: list[list[dict[str, Any]]]) -> str:
        """Put the parts of all nodes together: write the index, and give some lines on what was prepared."""
        output, found, arrays = self._arguments.output_data, self._found, token_arrays(self._settings)
        ordered = sorted((one for part in parts for one in part), key=lambda one: int(one["number"]))
        splits = {
            split: tuple(shard_from_json(one["shard"], arrays) for one in ordered if one["split"] == split)
            for split in SPLITS
        }
        index = Index(self._arguments.task, arrays, found.classes, None, splits, text=found.text())
        if found.skipped:
            write_skipped(output, found.skipped)
        if files := self._settings.tokens.files():
            write_tokenizer(output, files)
        write_index(output, index)
        return "\n".join(
            [*left_out(found.skipped, "documents"), summary(index, found.documents, self._arguments.dataset)]
        )

    def _open(self, bad: BadFiles) -> Documents:
        arguments = self._arguments
        request = Request(
            dataset=arguments.dataset,
            folder=arguments.data,
            labelled=self._labelled,
            splitter=Splitter(arguments.seed, arguments.validation_fraction, arguments.test_fraction),
            text_column=arguments.text_column,
            label_column=arguments.label_column,
            pattern=arguments.pattern,
            most_bytes=int(arguments.max_megabytes * 2**20),
            bad=bad,
        )
        return TEXT_SOURCES[arguments.dataset](request)

    def _tokens(self, learnt: dict[str, str]) -> Tokens:
        if learnt:
            return Subwords({name: text.encode() for name, text in learnt.items()}, "the learnt tokenizer")
        return Bytes() if self._arguments.tokenizer is None else Subwords.open(self._arguments.tokenizer)


def summary(index: Index, documents: dict[str, int], dataset: str) -> str:
    """One line on what was prepared."""
    text = index.text
    assert text is not None  # noqa: S101  # it is one of text
    rows = ", ".join(f"{split} {index.rows(split)}" for split in SPLITS)
    what = f"{len(index.classes)} classes" if index.classes else f"{sum(text.size.values()):,} bytes of text"
    gzip = f", gzip {text.gzip_bits_per_byte('test'):.3f} bits per byte of test" if text.gzip_size.get("test") else ""
    tokens = "bytes" if text.tokenizer == BYTES else "a tokenizer"
    length = f"up to {text.sequence_length}" if index.classes else str(text.sequence_length)
    return (
        f"prepared {dataset}: {rows} rows of {length} tokens from {sum(documents.values())} documents, "
        f"{tokens} with a vocabulary of {text.vocabulary}, {what}{gzip}"
    )


if __name__ == "__main__":
    main()
