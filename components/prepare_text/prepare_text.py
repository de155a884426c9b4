"""Turn texts into a prepared dataset of tokens: on each node local_rank 0 works, the other ranks wait.

The data's units depend on the data alone; each node takes a contiguous range of them. It first turns its units into
tokens, then all nodes tell each other how many there are, and each writes the shards of its units: the same files
whatever the number of nodes and ranks. The index is written last.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from shared.data import Index
from shared.data.dataset.index import BYTE_TOKENIZER, SPLITS, shard_from_json
from shared.data.text.documents import DocumentSource
from shared.data.text.encode import EncodedUnit, RowLayout, encode_units
from shared.data.text.shards import NodeReport, TokenShardWriter, plan_tokens, token_arrays
from shared.data.text.sources import TEXT_SOURCES, texts_to_learn_from
from shared.data.text.summary import TextSummary
from shared.data.text.tokens import SMALLEST_VOCABULARY, ByteTokens, SubwordTokens, Tokens, train_subwords
from shared.data.write import remove_leftovers, write_index, write_skipped, write_tokenizer
from shared.data.write.request import BadFiles, SourceRequest, describe_skipped
from shared.data.write.splits import DocumentSplitter
from shared.distributed import Refusal, World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, input_port, output_port, range_problems, settings_class
from shared.settings.preparing import SourceSettings, SplitSettings
from shared.settings.running import TimeoutSettings
from shared.tracking import PreparationProgress


@settings_class
class Settings:
    """The inputs and outputs of this component; component.yaml is written from them."""

    source: SourceSettings = changed_group(
        data=change(
            "Folder with your texts. files: one document in each file, and for text_classification one folder for each "
            "class. jsonl, csv, parquet: one document in each row of one or several files. Leave empty for stdlib."
        ),
        dataset=change(
            "What is read. stdlib is a built-in sample of about 9 MB: the sources of Python's standard library, "
            "without its tests; its classes are six of its packages. The others read data. jsonl and csv may be "
            "gzipped. A large file is shared by nodes and cores if it is a plain jsonl or a parquet; give csv and "
            "gzipped files as several.",
            default="stdlib",
            choices=tuple(TEXT_SOURCES),
        ),
    )
    task: Literal["language_modeling", "text_classification"] = input_port(
        "What is predicted: the next token of a text, or the class of a passage.", default="language_modeling"
    )
    text_column: str = input_port("For jsonl, csv and parquet: the column with the texts.", default="text")
    label_column: str = input_port(
        "For text_classification from jsonl, csv and parquet: the column with the classes, texts or whole numbers.",
        default="label",
    )
    pattern: str = input_port(
        "For files: which names count, such as *.txt,*.md. Several are separated by commas; one with a slash is "
        "compared with the path in the folder. Hidden and empty files never count.",
        default="*",
    )
    tokenizer: Path | None = input_port(
        "Folder with a tokenizer.json, as Hugging Face's fast tokenizers and model folders have it. It is copied into "
        "the dataset. Leave empty for bytes, or to learn one with vocabulary.",
        default=None,
    )
    vocabulary: int | None = input_port(
        "Without a tokenizer: learn one of so many tokens from the train split (byte-level BPE), and keep it in the "
        "dataset. A language model learns much faster on such tokens than on bytes.",
        default=None,
        least=SMALLEST_VOCABULARY,
        most=1048576,
    )
    sequence_length: int = input_port(
        "language_modeling: tokens that are predicted in each row. text_classification: the most tokens of a passage, "
        "with the tokenizer's special ones; longer documents are cut into passages of equal length, each of the "
        "document's class.",
        default=256,
        least=2,
        most=1048576,
    )
    documents: Literal["joined", "separate"] = input_port(
        "For language_modeling: what a row that has several documents means. joined: a token is predicted from all "
        "before it in the row. separate: from those of its own document alone, whose beginning is predicted from the "
        "token that ends the one before: attention does not cross documents. The rows are the same.",
        default="joined",
    )
    max_megabytes: float = input_port(
        "Documents of more megabytes are bad ones. Memory holds a few documents at a time.",
        default=16,
        least=0.001,
        most=1024,
    )
    splits: SplitSettings = changed_group(
        on_bad_file=change(
            "When a document is not UTF-8, too large, empty or without a class: fail stops and names its file and "
            "line; skip leaves it out and names it in skipped.csv."
        ),
        validation_fraction=change(
            "Share of the documents that goes into validation. Files are drawn by their path, in each class alike; "
            "rows of tables by their text, so that a text that occurs twice is in one split only."
        ),
        test_fraction=change("Share of the documents that goes into test, drawn likewise.", default=0.1),
        seed=change("Decides which documents go into which split; the same seed gives the same splits."),
        rows_per_shard=change("Rows in each file, at most. Leave empty for files of up to about 16 MB."),
    )
    timeouts: TimeoutSettings = changed_group(
        step_timeout=change("Minutes that the waiting ranks give to the one that does the work.", default=240)
    )
    output_data: Path = output_port(
        "The prepared dataset, index.json and shards, with the tokenizer's folder if there is one (and skipped.csv if "
        "documents were left out), for the input data of a trainer and of Evaluate.",
        mode="rw_mount",
        yaml_name="data",
    )


def main() -> None:
    """Prepare the dataset that the command line asks for."""
    settings = read_settings(Settings, __doc__, check_ranges=False)
    with init(timeout=settings.timeouts.start) as world:
        refuse_problems(settings)
        output, step_timeout = settings.output_data, settings.timeouts.step
        work = Preparation(settings, world)

        world.once(lambda: remove_leftovers(output), name="leftovers", scope="job", timeout=step_timeout)
        learnt = world.once(work.learn, name="tokenizer", scope="job", timeout=step_timeout)
        found = world.once(lambda: work.read(learnt), name="tokens", timeout=step_timeout)
        nodes = world.gather(found if world.local_rank == 0 else None, name="found")
        written = world.once(lambda: work.write([n for n in nodes if n]), name="shards", timeout=step_timeout)
        shards = world.gather(written if world.local_rank == 0 else None, name="written")
        joined = [s for s in shards if s]
        text = world.once(lambda: work.conclude(joined), name="index", scope="job", timeout=step_timeout)
        world.note(text)


def refuse_problems(settings: Settings) -> None:
    """Refuse values that make no sense, all of them at once."""
    problems, dataset = [*range_problems(settings), *settings.splits.problems()], settings.source.dataset
    if settings.pattern != "*" and dataset != "files":
        problems.append(f"pattern {settings.pattern!r} is for dataset files; {dataset} has none.")
    if settings.documents == "separate" and settings.task != "language_modeling":
        problems.append("documents separate is for language_modeling: passages have a row each.")
    if problems:
        raise Refusal("\n".join(problems))


class Preparation:
    """What the leaders of the nodes do, and what they keep from one part to the next."""

    def __init__(self, settings: Settings, world: World) -> None:
        self._settings, self._world = settings, world
        self._labelled = settings.task == "text_classification"
        self._bad = BadFiles(skip=settings.splits.skip_bad)
        self._encoded: list[EncodedUnit] = []

    def learn(self) -> dict[str, str]:
        """Learn a tokenizer where a vocabulary is asked for and none is given: its files by name."""
        if self._settings.vocabulary is None or self._settings.tokenizer is not None:
            return {}
        return train_subwords(texts_to_learn_from(self._open(BadFiles(skip=True))), self._settings.vocabulary)

    def read(self, learnt: dict[str, str]) -> dict[str, Any]:
        """Turn the node's units into tokens, and say what there is."""
        world = self._world
        settings = self._settings
        self._layout = RowLayout(self._tokens(learnt), settings.sequence_length, self._labelled, settings.documents)
        source = self._open(self._bad)
        count = len(source.sizes)
        mine = range(count * world.node_rank // world.num_nodes, count * (world.node_rank + 1) // world.num_nodes)
        with PreparationProgress(world, sum(source.sizes[unit] for unit in mine), "bytes") as progress:
            self._encoded = list(encode_units(source, mine, self._layout, self._bad, progress.reach))
        bad = self._bad.found if world.node_rank == 0 else ()  # what every node meets in opening the source
        return asdict(NodeReport.of(self._encoded, bad, self._layout, source))

    def write(self, nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write the shards of the node's units, if what all nodes found makes a dataset."""
        settings, world = self._settings, self._world
        found = self._found = TextSummary([NodeReport.from_json(node) for node in nodes], self._layout)
        found.refuse({"validation": settings.splits.validation_fraction, "test": settings.splits.test_fraction})
        plan = plan_tokens(found.units, self._layout, settings.splits.rows_per_shard)
        writer = TokenShardWriter(
            settings.output_data, self._encoded, found.nodes, world.node_rank, found.classes, self._layout
        )
        written = []
        mine = [job for job in plan if job.unit in writer.units]
        with PreparationProgress(world, sum(job.rows for job in mine)) as progress:
            for job in mine:
                written.append({"split": job.split, "number": job.number, "shard": asdict(writer.write(job))})
                progress.add(job.rows)
        return written

    def conclude(self, parts: list[list[dict[str, Any]]]) -> str:
        """Put the parts of all nodes together: write the index, and give some lines on what was prepared."""
        output, found, arrays = self._settings.output_data, self._found, token_arrays(self._layout)
        ordered = sorted((one for part in parts for one in part), key=lambda one: int(one["number"]))
        splits = {
            split: tuple(shard_from_json(one["shard"], arrays) for one in ordered if one["split"] == split)
            for split in SPLITS
        }
        index = Index(self._settings.task, arrays, found.classes, None, splits, text=found.text())
        if found.skipped:
            write_skipped(output, found.skipped)
        if files := self._layout.tokens.files():
            write_tokenizer(output, files)
        write_index(output, index)
        summary = summary_line(index, found.documents, self._settings.source.dataset)
        return "\n".join([*describe_skipped(found.skipped, "documents"), summary])

    def _open(self, bad: BadFiles) -> DocumentSource:
        settings, splits = self._settings, self._settings.splits
        request = SourceRequest(
            dataset=settings.source.dataset,
            folder=settings.source.data,
            labelled=self._labelled,
            splitter=DocumentSplitter(splits.seed, splits.validation_fraction, splits.test_fraction),
            text_column=settings.text_column,
            label_column=settings.label_column,
            pattern=settings.pattern,
            most_bytes=int(settings.max_megabytes * 2**20),
            bad=bad,
        )
        return TEXT_SOURCES[settings.source.dataset](request)

    def _tokens(self, learnt: dict[str, str]) -> Tokens:
        if learnt:
            return SubwordTokens({name: text.encode() for name, text in learnt.items()}, "the learnt tokenizer")
        return ByteTokens() if self._settings.tokenizer is None else SubwordTokens.open(self._settings.tokenizer)


def summary_line(index: Index, documents: dict[str, int], dataset: str) -> str:
    """One line on what was prepared."""
    text = index.text
    assert text is not None  # noqa: S101  # it is one of text
    rows = ", ".join(f"{split} {index.rows(split)}" for split in SPLITS)
    what = f"{len(index.classes)} classes" if index.classes else f"{sum(text.size.values()):,} bytes of text"
    gzip = f", gzip {text.gzip_bits_per_byte('test'):.3f} bits per byte of test" if text.gzip_size.get("test") else ""
    tokens = "bytes" if text.tokenizer == BYTE_TOKENIZER else "a tokenizer"
    length = f"up to {text.sequence_length}" if index.classes else str(text.sequence_length)
    return (
        f"prepared {dataset}: {rows} rows of {length} tokens from {sum(documents.values())} documents, "
        f"{tokens} with a vocabulary of {text.vocabulary}, {what}{gzip}"
    )


if __name__ == "__main__":
    main()
