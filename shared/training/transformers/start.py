"""The model that is trained: from a folder, from a configuration, or a small one of ours from nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from shared.data import Dataset, TextEncoding
from shared.distributed import Refusal, World
from shared.models import ModelCard
from shared.models.transformers.package import check_layers
from shared.models.weight_files import weight_paths
from shared.settings.network import BaseModelSettings
from shared.settings.training import PrecisionSettings
from shared.storage import JSON_BYTES, RandomReads, read_bytes
from shared.training.torch.start import seed_generators, tokenizer_folder
from shared.training.transformers.divided import divide_model, fill_divided_model, make_empty_model, reshard_model
from shared.training.transformers.folder import check_model_folder, find_config
from shared.training.transformers.outputs import check_output

_TOKENIZER = "tokenizer.json"
_OFFSET_TYPES = ("roberta", "camembert", "longformer", "mpnet", "data2vec-text", "ibert")
"""Types whose positions begin after the id of the padding token, and whose relatives' names begin likewise."""


def special_tokens(data: Dataset) -> tuple[int | None, int]:
    """Give the token that fills rows up, None for those of a language model, which are full, and the separator.

    That is the token behind which a document begins; -1 if a row is one text.
    """
    return (_text(data).padding if data.index.classes else None), _text(data).separator


def _text(data: Dataset) -> TextEncoding:
    """Give what the rows of a text are made of."""
    assert data.index.text is not None  # noqa: S101  # the tasks are those of text
    return data.index.text


def make_base_model(
    base: BaseModelSettings, precision: PrecisionSettings, seed: int, data: Dataset, *, divided: bool = False
) -> PreTrainedModel:
    """Make the model that is asked for, in float32 on the CPU; new weights depend on the seed alone.

    One that is to be `divided` among the ranks has no memory yet, if each of them can read its parts of the folder.

    Raises:
        Refusal: if the folder holds no model, if it does not fit the data, or if it cannot do the task.
    """
    if base.base_model and base.base_config:
        raise Refusal("base_model and base_config are both given: a model to go on from, or one to begin; choose one.")
    text, folder = _text(data), check_model_folder(base.base_model) if base.base_model else None
    what = str(folder or base.base_config or "the built-in model")
    kind: Any = AutoModelForSequenceClassification if data.index.classes else AutoModelForCausalLM
    try:
        config = _config(folder, base.base_config, data, text)
        _check_fit(config, data, text, folder)
        _adapt(config, data, text)
        seed_generators(seed)
        net = make_empty_model(kind, config, folder) if divided and folder is not None else None
        if net is None:
            net = kind.from_config(config, trust_remote_code=False) if folder is None else _loaded(kind, folder, config)
            check_output(net, data)
        net.config.use_cache = False
    except (Refusal, ImportError):
        raise
    except Exception as error:  # a stranger's configuration ends transformers with any of them
        raise Refusal(f"{what} cannot be used for {data.index.task}: {' '.join(str(error).split())[:400]}") from error
    if precision.gradient_checkpointing:
        _checkpoint_activations(net)
    return net


def divide_base_model(
    net: PreTrainedModel, base: BaseModelSettings, seed: int, data: Dataset, world: World, dtype: torch.dtype
) -> None:
    """Divide a model over the ranks, and fill one that was made without memory; every rank calls this.

    `dtype` is what it computes in.

    Raises:
        Refusal: if it cannot do the task.
    """
    empty = net.device.type == "meta"
    divide_model(net, world, dtype)
    if not empty:
        return
    assert base.base_model is not None  # noqa: S101  # or it would have memory
    fill_divided_model(net, base.base_model, seed, world.device)
    try:
        check_output(net, data)
    except (ValueError, IndexError, RuntimeError) as error:
        raise Refusal(f"{base.base_model} cannot be used for {data.index.task}: {error}") from error
    reshard_model(net)


def architecture_of(net: PreTrainedModel) -> str:
    """Name of a model's class, without what `fully_shard` puts before it."""
    return type(net).__name__.removeprefix("FSDP")


def card_of_transformer(net: PreTrainedModel, data: Dataset) -> ModelCard:
    """Describe the model."""
    text = _text(data)
    return ModelCard(
        architecture=architecture_of(net),
        input_shape=(text.sequence_length,),
        input_dtype="int64",
        classes=data.index.classes,
        task=data.index.task,
        framework="transformers",
        vocabulary=int(net.config.get_text_config().vocab_size),
        tokenizer=text.tokenizer,
        settings={"separator": text.separator} if text.separator >= 0 else {},
    )


def _check_fit(config: PreTrainedConfig, data: Dataset, text: TextEncoding, folder: Path | None) -> None:
    """Compare a configuration, and the tokenizer beside it, with the data.

    Raises:
        Refusal: naming all that does not fit.
    """
    problems = []
    vocabulary: int | None = getattr(config, "vocab_size", None)
    positions = _positions(config)
    if vocabulary is not None and vocabulary < text.vocabulary:
        problems.append(f"the data's vocabulary has {text.vocabulary} tokens, the model's {vocabulary}")
    if positions is not None and positions < text.sequence_length:
        problems.append(f"the data's rows have up to {text.sequence_length} tokens, the model takes {positions}")
    if folder is not None and (folder / _TOKENIZER).is_file() and not _same_tokenizer(folder, data, text):
        problems.append(f"the data was prepared with another tokenizer ({text.tokenizer}) than {folder / _TOKENIZER}")
    known = _labels(config) if data.index.classes else ()
    if known and known != data.index.classes:
        problems.append(f"the model knows the classes {_few(known)}, the data has {_few(data.index.classes)}")
    if problems:
        raise Refusal(
            f"Model and data do not fit: {'; '.join(problems)}. Prepare the text with the model's folder as its "
            "tokenizer and at most its sequence length; for other classes give a model without a head."
        )


def _config(folder: Path | None, base_config: Path | None, data: Dataset, text: TextEncoding) -> PreTrainedConfig:
    source = folder or (find_config(base_config) if base_config else None)
    if source is None:
        return _small(text, causal=not data.index.classes)
    config = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    check_layers(config)
    return config


def _small(text: TextEncoding, *, causal: bool) -> PreTrainedConfig:
    """A model that two CPU cores train in minutes."""
    if causal:
        return LlamaConfig(
            vocab_size=text.vocabulary,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=text.sequence_length,
            bos_token_id=text.end_of_text,
            eos_token_id=text.end_of_text,
        )
    names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    special: dict[str, Any] = dict.fromkeys(names, text.end_of_text)
    return ModernBertConfig(
        vocab_size=text.vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=text.sequence_length,
        classifier_pooling="mean",  # bytes and learnt tokens have no [CLS]
        embedding_dropout=0.3,
        mlp_dropout=0.1,
        classifier_dropout=0.3,
        pad_token_id=text.padding,
        **special,
    )


def _adapt(config: PreTrainedConfig, data: Dataset, text: TextEncoding) -> None:
    """Write the data's classes and padding into the configuration."""
    if data.index.classes:
        config.id2label = dict(enumerate(data.index.classes))
        config.label2id = {name: number for number, name in enumerate(data.index.classes)}
        config.pad_token_id = text.padding
        config.problem_type = "single_label_classification"


def _loaded(kind: Any, folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """Load a model, and see that the weights of its body are there; a head may be new."""
    net: PreTrainedModel
    found: Mapping[str, Collection[str]]
    net, found = kind.from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=torch.float32,
        output_loading_info=True,
    )
    body = f"{net.base_model_prefix}."
    missing = sorted(name for name in found["missing_keys"] if name.startswith(body) and "pooler" not in name)
    if missing:
        raise Refusal(
            f"The weights in {folder} are not those of its config.json: {len(missing)} are missing, such as "
            f"{', '.join(missing[:3])}."
        )
    return net


def _checkpoint_activations(net: PreTrainedModel) -> None:
    enable = getattr(net, "activation_checkpointing_enable", None) or net.gradient_checkpointing_enable
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise Refusal(f"gradient_checkpointing: {error}") from error


def _positions(config: PreTrainedConfig) -> int | None:
    """Tokens that a model takes at most, if it says so."""
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None or not config.model_type.removeprefix("xlm-").startswith(_OFFSET_TYPES):
        return positions
    return positions - int(config.pad_token_id or 0) - 1


def _labels(config: PreTrainedConfig) -> tuple[str, ...]:
    """Names of the classes that a model has a head for; empty if it has none, or no names for them."""
    if not any("SequenceClassification" in name for name in config.architectures or ()):
        return ()
    names = tuple(name for _, name in sorted((config.id2label or {}).items()))
    return () if all(name == f"LABEL_{number}" for number, name in enumerate(names)) else names


def _same_tokenizer(folder: Path, data: Dataset, text: TextEncoding) -> bool:
    """Compare what the two tokenizers do; a file that was written again may differ in its spaces."""
    theirs = tokenizer_folder(data)
    if theirs is None:
        return False
    if hashlib.sha256(read_bytes(folder / _TOKENIZER)).hexdigest() == text.sha256:
        return True
    from tokenizers import Tokenizer

    both = [Tokenizer.from_buffer(read_bytes(place / _TOKENIZER)) for place in (folder, theirs)]
    for tokenizer in both:
        tokenizer.no_padding()
        tokenizer.no_truncation()
    return both[0].to_str() == both[1].to_str()


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_PASSING: Final = ("_name_or_path", "transformers_version")
"""Entries of a configuration that say who has written it, and where."""
_BEGIN_BYTES: Final = 2**16
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 256


def base_identity(base: BaseModelSettings) -> dict[str, str | None]:
    """Say which model a training begins with, by input: its type and a hash, None where none is given.

    The hash is over the configuration, the sizes of the weights' files, and samples of them, 80 KB of each: to read all
    would take minutes at each start. Models that differ in a few small tensors alone may be taken for the same.

    Raises:
        Refusal: if there is no configuration, or there are no weights.
    """
    folder, config = base.base_model, base.base_config
    return {
        "base_model": None if folder is None else _short_hash(folder, [_sample(path) for path in weight_paths(folder)]),
        "base_config": None if config is None else _short_hash(config, []),
    }


def _short_hash(place: Path, samples: list[bytes]) -> str:
    config: dict[str, Any] = json.loads(read_bytes(find_config(place), JSON_BYTES))
    kept = {name: value for name, value in config.items() if name not in _PASSING}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for sample in samples:
        digest.update(hashlib.sha256(sample).digest())
    return f"{config.get('model_type')} {digest.hexdigest()[:16]}"


def _sample(path: Path) -> bytes:
    """Read a file's beginning, where the names and shapes are, and some of its values; with its size."""
    file = RandomReads(path)
    try:
        places = [(0, _BEGIN_BYTES), *((file.size * n // _SAMPLES, _SAMPLE_BYTES) for n in range(_SAMPLES))]
        samples = [bytes(file.read(place, min(length, file.size - place))) for place, length in places]
    finally:
        file.close()
    return b"".join([str(file.size).encode(), *samples])
