"""Saving a model as a folder that MLflow serves, and reading it back without MLflow. No pickle on either way.

The folder is an MLflow model *from code*::

    MLmodel, requirements.txt, conda.yaml, python_env.yaml
    serve.py                            the script that MLflow runs to load the model
    artifacts/model/weights.safetensors
    artifacts/model/huggingface/        of a language model, in their place: a folder that transformers loads
    artifacts/model/card.json
    artifacts/model/zoo/                a copy of this package, which rebuilds the network
    artifacts/model/tokenizer/          the tokenizer of a language model, if it has one
    artifacts/model/model_code/         the user's own code, if there is any

These few files are written directly: importing MLflow for it took 1.4 s and its `save_model` 0.8 s more, and so a
node needs no MLflow. A test compares them with what MLflow writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from .build import ZOO, NormalisedModel, build_network
from .card import LANGUAGE_MODELING, ModelCard
from .decoder import DecoderModel, DecoderSettings, initialise_decoder
from .folder import (
    CARD_NAME,
    HUGGINGFACE_NAME,
    INSIDE,
    WEIGHTS_NAME,
    begin_model,
    copy_tokenizer,
    finish_model,
    open_model,
    write_weights,
)
from .llama import llama_name, llama_tensors, write_llama_config
from .mlmodel import installed_versions
from .raw_rows import serve_table
from .stored import make_refusal, read_stored
from .weight_files import FileWriter, WeightReader, divide_tensors

_SAVEABLE: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8}) | {
    torch.int8, torch.int16, torch.int32, torch.int64,
}  # fmt: skip

_NEEDED: Final = ("torch", "safetensors", "numpy")
_ROWS_AT_ONCE: Final = 1024
_OUTPUTS_AT_ONCE: Final = 2**24
"""A language model gives a whole vocabulary for each token of a row: 64 MiB of float32 at once."""


def from_card(card: ModelCard, model_code: str | Path | None = None) -> nn.Module:
    """Build the module that a card describes, with fresh weights in float32: a `NormalisedModel`, or a `DecoderModel`.

    Raises:
        Refusal: see `build_network`.
    """
    if card.task == LANGUAGE_MODELING:
        return initialise_decoder(empty_decoder(card), seed=0)
    net = build_network(card.architecture, card.network_shape, card.outputs, model_code, card.arguments)
    return NormalisedModel(card.mean, card.std, net, card.target_mean, card.target_std, card.category_sizes)


def empty_decoder(card: ModelCard) -> DecoderModel:
    """Build the language model that a card describes, without memory for its weights.

    Raises:
        Refusal: if it is none that this version can build.
    """
    if card.architecture != "decoder":
        raise make_refusal(f"architecture {card.architecture!r} is no language model: choose decoder.")
    try:
        return DecoderModel(DecoderSettings(**card.settings))
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise make_refusal(f"The settings {dict(card.settings)} are not those of a decoder: {error}.") from error


def check_saveable(module: nn.Module, card: ModelCard, model_code: str | Path | None = None) -> None:
    """Show before the first step that the module can be saved and rebuilt: after the last one it would be too late.

    Leaves the random number generators as they were.

    Raises:
        Refusal: if tensors share memory, have a type that safetensors does not know, or do not fit into a second
            module built from the card.
    """
    state = _state(module)
    again = _to_be_loaded(card, model_code)
    _load(again, state, f"{card.architecture} cannot be saved: a second one, built in the same way,")


def save_model(
    folder: str | Path,
    module: nn.Module,
    card: ModelCard,
    model_code: str | Path | None = None,
    tokenizer: str | Path | None = None,
    packages: Sequence[str] = (),
) -> None:
    """Write a trained module as an MLflow model; what an earlier attempt left in the folder is replaced.

    Args:
        folder: where to; made if needed.
        module: a `NormalisedModel` or a `DecoderModel`, on any device.
        card: what it is.
        model_code: folder of the user's code, which is copied into the model; needed if `build_network` needed it.
        tokenizer: folder of a language model's tokenizer, which is copied into the model; None for bytes.
        packages: what the user's code imports besides torch and NumPy.

    Raises:
        Refusal: see `check_saveable`.
    """
    state, inside = _state(module), begin_model(folder)
    if isinstance(module, DecoderModel):
        _write_decoder(inside, state, module)
        finish_decoder(folder, card, next(module.parameters()).dtype, tokenizer)
        return
    write_weights(inside, state)
    needed = (*_NEEDED, *packages)
    copied = {"model_code": model_code, "tokenizer": tokenizer}
    finish_model(folder, card, installed_versions(needed), copied)


def finish_decoder(
    folder: str | Path,
    card: ModelCard,
    dtype: torch.dtype,
    tokenizer: str | Path | None,
    end_of_text: int | None = None,
) -> None:
    """Write all that belongs to a saved language model besides its weights, which lie in its `HUGGINGFACE_NAME`.

    `dtype` is theirs; see `save_model` and `write_llama_config` for the others.
    """
    place = Path(folder) / INSIDE / HUGGINGFACE_NAME
    write_llama_config(place, DecoderSettings(**card.settings), dtype, end_of_text)
    copy_tokenizer(tokenizer, place)
    finish_model(folder, card, installed_versions(_NEEDED), {"tokenizer": tokenizer})


def load_model(folder: str | Path) -> tuple[nn.Module, ModelCard]:
    """Read a folder that `save_model` wrote (or its ``artifacts/model``), in eval mode on the CPU.

    Runs the user's code in the folder, if the architecture is the user's.

    Raises:
        Refusal: if the folder holds no such model, or a damaged one.
    """
    inside, card = open_model(folder)
    if card.task == LANGUAGE_MODELING and (inside / HUGGINGFACE_NAME).is_dir():
        return _read_decoder(inside / HUGGINGFACE_NAME, card).eval(), card
    state = read_weights(inside / WEIGHTS_NAME)
    users = inside / "model_code"
    _refuse_other_sizes(card, state, inside / CARD_NAME)
    module = _to_be_loaded(card, users if users.is_dir() else None)
    _load(module, state, f"{card.architecture} as this version builds it, saved by {card.library_version},")
    return module.eval(), card


def read_weights(file: Path) -> dict[str, torch.Tensor]:
    """Read the file of a saved model's weights.

    Raises:
        Refusal: if it is missing or damaged.
    """
    try:
        return dict(load(read_stored(file)))
    except (SafetensorError, OSError) as error:
        raise make_refusal(f"{file} cannot be read: {error}. Train and save the model again.") from error


def _write_decoder(inside: Path, state: dict[str, torch.Tensor], module: DecoderModel) -> None:
    from shared.storage import make_folder

    place, tensors = inside / HUGGINGFACE_NAME, {llama_name(name): tensor for name, tensor in state.items()}
    make_folder(place)
    for file in divide_tensors(llama_tensors(module.settings, next(module.parameters()).dtype), math.inf):
        with FileWriter(place, file) as writer:
            for saved in file.tensors:
                writer.write(tensors[saved.name])


def _read_decoder(place: Path, card: ModelCard) -> DecoderModel:
    """Read a language model, in the type of its weights."""
    reader, module = WeightReader(place), empty_decoder(card)
    check_decoder_weights(reader, module.settings)
    module.to(reader.dtypes[llama_name("norm.weight")]).to_empty(device="cpu")
    for name, parameter in module.named_parameters():
        reader.read(llama_name(name), parameter.detach(), (0,) * parameter.ndim)
    return module


def check_decoder_weights(reader: WeightReader, settings: DecoderSettings) -> None:
    """See that a folder has the weights of a decoder.

    Raises:
        Refusal: if one is missing, or has another shape.
    """
    wrong = [
        f"{one.name} {list(one.shape)} is {list(reader.shapes[one.name]) if one.name in reader.shapes else 'missing'}"
        for one in llama_tensors(settings, torch.float32)
        if reader.shapes.get(one.name) != one.shape
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise make_refusal(f"The weights in {reader.folder} are not those of its model: {', '.join(wrong[:3])}{more}.")


def load_served(inside: Path) -> Callable[[Any], Any]:
    """Load a saved model as MLflow serves it: raw rows as the dataset held them to float32 outputs.

    They are one logit for each class or the value of a regression, (N, outputs); of a language model, which takes rows
    of tokens (N, L), logits for what may follow each, (N, L, vocabulary). A model of a table takes the user's own rows.
    """
    module, card = load_model(inside)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module.to(device)

    def serve(given: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        rows = torch.from_numpy(np.array(given, dtype=card.input_dtype, ndmin=1 + len(card.input_shape)))
        per_row = rows.shape[1] * card.vocabulary if card.vocabulary else 1
        at_once = max(1, min(_ROWS_AT_ONCE, _OUTPUTS_AT_ONCE // max(1, per_row)))
        with torch.inference_mode():
            return torch.cat([module(part.to(device)).float().cpu() for part in rows.split(at_once)]).numpy()

    return serve_table(card, serve) if card.table else serve


def _state(module: nn.Module) -> dict[str, torch.Tensor]:
    """Take the state of a module as contiguous tensors on the CPU, or say why safetensors could not hold it."""
    state = module.state_dict()
    owners: dict[int, str] = {}
    for name, tensor in state.items():
        if nn.parameter.is_lazy(tensor):
            raise make_refusal(f"{name} of the model has no size yet, as in LazyLinear: give each layer its sizes.")
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.dtype not in _SAVEABLE:
            what = f"{tensor.layout} of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise make_refusal(f"The model cannot be saved: {name} in its state is a {what}, not a plain tensor.")
        first = owners.setdefault(tensor.untyped_storage().data_ptr(), name) if tensor.numel() else name
        if first != name:
            raise make_refusal(
                f"The model cannot be saved: {first} and {name} share memory. Use one parameter in both places "
                "under one name (for instance functional.linear with the embedding's weight), or register a copy."
            )
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def _to_be_loaded(card: ModelCard, model_code: str | Path | None) -> nn.Module:
    """Build a module that is only loaded into: a decoder, which may be large, without memory of its own."""
    if card.task == LANGUAGE_MODELING:
        return empty_decoder(card)
    with torch.random.fork_rng():
        return from_card(card, model_code)


def _refuse_other_sizes(card: ModelCard, state: Mapping[str, torch.Tensor], source: Path) -> None:
    """Compare what a card describes with the weights, without memory for it: a card may claim any size."""
    if card.architecture not in ZOO or card.task == LANGUAGE_MODELING:
        return
    try:
        with torch.device("meta"):
            wanted = {name: tuple(tensor.shape) for name, tensor in from_card(card).state_dict().items()}
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise make_refusal(f"{source} describes no model that can be built: {reason}") from error
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if wrong := sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name]):
        shapes = f"{wrong[0]} has {found[wrong[0]]} there, and {wanted[wrong[0]]} by its card"
        raise make_refusal(
            f"{source} does not describe the weights beside it: {shapes}. Train and save the model again."
        )


def _load(module: nn.Module, state: dict[str, torch.Tensor], what: str) -> None:
    """Put a state into a module, which takes the floating-point type of the state."""
    if "mean" in state:
        module.to(state["mean"].dtype)
    try:
        module.load_state_dict(state, assign=isinstance(module, DecoderModel))
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise make_refusal(f"{what} does not take the weights: {detail}") from error
