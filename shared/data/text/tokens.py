"""From texts to token ids: their bytes, or what a tokenizer of Hugging Face's `tokenizers` makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import TOKENIZER_FILE, TOKENIZER_FILES, TOKENIZER_FOLDER
from shared.distributed import Refusal
from shared.storage import TOKENIZER_BYTES, list_folder, read_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = npt.NDArray[np.integer[Any]]

_CONFIG = "tokenizer_config.json"
_END_OF_TEXT = "<|endoftext|>"
_ENDS = (_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
_PADDINGS = ("[PAD]", "<pad>", "<|padding|>", "<|pad|>")
SMALLEST_VOCABULARY = 300
"""Tokens that a trained vocabulary has at least: the 256 bytes, the end of a text, and some that are worth the work."""


class Tokens(Protocol):
    """What turns texts into token ids; safe to use from several threads."""

    vocabulary: int
    padding: int
    end_of_text: int
    sha256: str

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text, without special tokens."""

    def passages(self, texts: Sequence[str], longest: int) -> list[list[Ids]]:
        """Ids of each text with its special tokens, cut into passages of at most ``longest``, all about equally long.

        Without a remainder no passage is so short that nothing can be said about it.
        """

    def files(self) -> Mapping[str, bytes]:
        """What the dataset's tokenizer folder has to hold; nothing for bytes."""


class ByteTokens:
    """Ids 0 to 255 are the bytes of UTF-8; 256 is the end of a text, and padding."""

    vocabulary = 257
    padding = end_of_text = 256
    sha256 = ""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Bytes of each text."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def passages(self, texts: Sequence[str], longest: int) -> list[list[Ids]]:
        """Bytes of each text, cut."""
        return [list(np.array_split(ids, -(-len(ids) // longest))) for ids in self.encode(texts)]

    def files(self) -> Mapping[str, bytes]:
        """Nothing."""
        return MappingProxyType({})


class SubwordTokens:
    """A tokenizer of a folder with `tokenizer.json`, whose content by name it gets; messages call it `source`.

    Raises:
        Refusal: if it cannot be read, or if it has no token that could end a text.
    """

    def __init__(self, files: Mapping[str, bytes], source: str) -> None:
        self._files, self._source = files, source
        try:
            self._tokenizer: Tokenizer = _library().Tokenizer.from_buffer(files[TOKENIZER_FILE])
            config = json.loads(files.get(_CONFIG, b"{}"))
        except Exception as error:  # the library raises nothing narrower
            raise Refusal(f"{source}: its {TOKENIZER_FILE} or {_CONFIG} cannot be read: {str(error)[:200]}") from error
        self._tokenizer.encode_special_tokens = True  # a document that quotes a control token holds plain text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = max(vocabulary.values()) + 1  # ids may have gaps
        end = _first(vocabulary, _named(config, "eos_token"), _ENDS)
        if end is None:
            raise Refusal(
                f"{source} has no token for the end of a text: none of {', '.join(_ENDS)}. "
                f'Name it in {_CONFIG}: {{"eos_token": "..."}}.'
            )
        self.end_of_text = end
        padding = _first(vocabulary, _named(config, "pad_token"), _PADDINGS)
        self.padding = end if padding is None else padding
        self.sha256 = hashlib.sha256(files[TOKENIZER_FILE]).hexdigest()

    @classmethod
    def open(cls, folder: Path) -> SubwordTokens:
        """Read a folder, or the folder `tokenizer` in it.

        Raises:
            Refusal: if there is no `tokenizer.json`, or one that cannot be used.
        """
        inside = next(
            (place for place in (folder, folder / TOKENIZER_FOLDER) if (place / TOKENIZER_FILE).is_file()), None
        )
        if inside is None:
            there = ", ".join([path.name for path in list_folder(folder)][:8]) or "nothing"
            raise Refusal(
                f"tokenizer: {folder} holds no {TOKENIZER_FILE}, but {there}. Give the folder of a fast tokenizer of "
                "Hugging Face (tokenizer.save_pretrained writes one), or leave the input empty for bytes."
            )
        return cls(
            {name: read_bytes(inside / name, TOKENIZER_BYTES) for name in TOKENIZER_FILES if (inside / name).is_file()},
            str(folder),
        )

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, np.int32) for one in found]

    def passages(self, texts: Sequence[str], longest: int) -> list[list[Ids]]:
        """Ids of each text, cut, each passage with the special tokens of its own."""
        room = longest - self._tokenizer.num_special_tokens_to_add(is_pair=False)
        if room < 1:
            raise Refusal(f"sequence_length {longest} has no room beside the special tokens of {self._source}.")
        cut: list[list[Ids]] = []
        for one in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
            pieces = -(-len(one.ids) // room) or 1
            one.truncate(-(-len(one.ids) // pieces))
            cut.append([np.array(self._tokenizer.post_process(p).ids, np.int32) for p in (one, *one.overflowing)])
        return cut

    def files(self) -> Mapping[str, bytes]:
        """What it was read from."""
        return self._files


def train_subwords(texts: Iterable[str], vocabulary: int) -> dict[str, str]:
    """Learn byte-level BPE from texts: the files of its folder. The same texts give the same files.

    Any text can be written with it, because the 256 bytes are in it. AutoTokenizer of transformers reads the folder.

    The texts are read once; memory holds the different words in them. The vocabulary has `SMALLEST_VOCABULARY` tokens
    or more; fewer come out where the texts hold no more.
    """
    library = _library()
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[_END_OF_TEXT],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _END_OF_TEXT,
        "pad_token": _END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
    }
    return {TOKENIZER_FILE: tokenizer.to_str(pretty=True) + "\n", _CONFIG: json.dumps(config, indent=2) + "\n"}


def _library() -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        raise Refusal(
            "tokenizer and vocabulary need the package tokenizers, which is not installed: "
            'pip install "tokenizers>=0.21", or leave both empty for bytes.'
        ) from error
    return tokenizers


def _named(config: Any, key: str) -> tuple[str, ...]:
    """A special token of tokenizer_config.json: its text, or an object with the text in ``content``."""
    found = config.get(key) if isinstance(config, dict) else None
    text = found.get("content") if isinstance(found, dict) else found
    return (text,) if isinstance(text, str) else ()


def _first(vocabulary: Mapping[str, int], *wanted: tuple[str, ...]) -> int | None:
    return next((vocabulary[name] for some in wanted for name in some if name in vocabulary), None)
