"""What all nodes found together: the numbers of the index, and whether it makes a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.data.dataset.encodings import TextEncoding
from shared.data.dataset.index import BYTE_TOKENIZER, SPLITS, TOKENIZER_FOLDER
from shared.data.formats.file_format import read_budget
from shared.data.text.encode import RowLayout, UnitCounts
from shared.data.text.shards import NodeReport
from shared.data.write.request import list_names
from shared.distributed import Refusal


class TextSummary:
    """Sums over the units of all nodes."""

    def __init__(self, nodes: Sequence[NodeReport], layout: RowLayout) -> None:
        self.nodes, self._layout = nodes, layout
        self.units: list[dict[str, UnitCounts]] = [unit for node in nodes for unit in node.units]

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Path and reason of each document that was left out."""
        return [(bad.path, bad.reason) for node in self.nodes for bad in node.bad]

    @property
    def documents(self) -> dict[str, int]:
        """Number of documents of each split."""
        return {split: sum(unit[split].documents for unit in self.units) for split in SPLITS}

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes: whole numbers by their value, texts by their letters."""
        found = {name for unit in self.units for part in unit.values() for name in part.classes}
        numbers = all(name.removeprefix("-").isdecimal() for name in found)
        return tuple(sorted(found, key=lambda name: (int(name) if numbers else 0, name)))

    def text(self) -> TextEncoding:
        """What the index says about the text."""
        tokens = self._layout.tokens
        size, gzip_size, count = (
            {split: sum(getattr(unit[split], what) for unit in self.units) for split in SPLITS}
            for what in ("size", "gzip_size", "tokens")
        )
        return TextEncoding(
            tokenizer=TOKENIZER_FOLDER if tokens.files() else BYTE_TOKENIZER,
            vocabulary=tokens.vocabulary,
            sequence_length=self._layout.sequence_length,
            padding=tokens.padding,
            end_of_text=tokens.end_of_text,
            size=size,
            gzip_size={} if self._layout.labelled else gzip_size,
            tokens=count,
            sha256=tokens.sha256,
            documents=self._layout.documents,
        )

    def refuse(self, fractions: Mapping[str, float]) -> None:
        """See that there is something to train on, and to measure with where a split has a fraction above 0.

        Raises:
            Refusal: with everything that is missing.
        """
        if len({node.digest for node in self.nodes}) > 1:
            raise Refusal(
                "the nodes do not see the same files: their sizes differ. Give all nodes the same data, for dataset "
                "stdlib the same Python."
            )
        problems = self._lacking_classes() if self._layout.labelled else []
        for split in ("train", *(split for split, fraction in fractions.items() if fraction > 0)):
            if problem := self._lacking(split):
                what = "" if split == "train" else f"; raise {split}_fraction, or set it to 0"
                problems.append(f"{split} {problem}{what}.")
        if problems:
            raise Refusal("\n".join(problems))

    def _lacking(self, split: str) -> str:
        """What keeps a split from having a row."""
        documents, tokens = self.documents[split], self.text().tokens[split]
        if not documents:
            return f"has none of the {sum(self.documents.values())} documents"
        needed = self._layout.sequence_length + 1
        if not self._layout.labelled and tokens < needed:
            return f"has {tokens} tokens, but a row takes {needed} (sequence_length + 1): add text or lower it"
        return ""

    def _lacking_classes(self) -> list[str]:
        classes = self.classes
        if len(classes) > (budget := read_budget()).classes:
            some = f"{list_names(classes, 3)}: is label_column the right one?"
            most = f"Up to {budget.classes:,} are taken; {budget.how_to_raise('classes')}."
            return [f"there are {len(classes)} classes, such as {some} {most}"]
        trained = {name for unit in self.units for name in unit["train"].classes}
        problems = []
        if lost := [name for name in classes if name not in trained]:
            problems.append(f"no document of {list_names(lost)} is in train: add documents, or remove the class.")
        if len(classes) < 2:
            problems.append(
                f"the documents have {len(classes)} classes ({list_names(classes)}); two at least are needed."
            )
        return problems
