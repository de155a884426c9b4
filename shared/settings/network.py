"""Which model is trained: a small one of ours, the user's own, one of Hugging Face's, or a decoder of a given size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from shared.distributed import Refusal
from shared.settings.fields import Idle, Situation, input_port, settings_class

_OF_TEXT = Idle("the data is no text", lambda now: not now.is_text)


def _is_of_library(now: Situation) -> bool:
    return now.values.get("module") is None and (now.is_text or ".py:" not in now.values["architecture"])


_OTHER_NETWORK = (
    Idle("the module {module} is trained in its place", lambda now: now.values.get("module") is not None),
    Idle("a text has a language model of its own", lambda now: now.is_text),
)


@settings_class
class NetworkSettings:
    """A model for images and tables."""

    architecture: str = input_port(
        "mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for images too; "
        "vit_small_patch16 or vit_base_patch16, as weights are published for them; or FILE.py:FUNCTION in the folder "
        '"model_code". Tables take mlp. The function takes (input_shape, num_outputs) and returns a torch.nn.Module '
        "for channels-first batches.",
        default="mlp",
        is_identity=True,
        idle=(Idle("the module {module} is trained in its place", lambda now: now.values.get("module") is not None),),
    )
    model_code: Path | None = input_port(
        'Folder with your model\'s code, when "architecture" is FILE.py:FUNCTION; otherwise it has no effect.',
        default=None,
        idle=(Idle("the model is one of this library", _is_of_library),),
    )
    initial_model: Path | None = input_port(
        "A model that this trainer, or another one of the same framework, has saved, of the same architecture: the "
        "training begins with its weights, and with its mean and deviation of the rows. With other classes, or another "
        "target, its head is new. A run that goes on from a checkpoint has its weights from there.",
        default=None,
        kind="mlflow_model",
        idle=_OTHER_NETWORK,
    )
    initial_weights: Path | None = input_port(
        "Folder with one file of published weights to fine-tune, .safetensors or .pth: torchvision's or timm's for "
        "resnet18, resnet34 or resnet50, timm's for vit_small_patch16 or vit_base_patch16. The last layer is new where "
        "the number of classes differs. ResNets need pictures of more than 64 pixels. A run that goes on from a "
        "checkpoint has its weights from there.",
        default=None,
        idle=_OTHER_NETWORK,
    )
    normalization: Literal["auto", "data", "imagenet", "half"] = input_port(
        "Mean and deviation by which the model normalises its rows. data: the data's own. imagenet: those of "
        "torchvision's weights, and of DeiT, DINO and MAE. half: 0.5, those of timm's vision transformers. auto: those "
        "that the first weights were trained with: of initial_model; for initial_weights what timm's config.json "
        "beside them says, else imagenet for a ResNet and half for a vision transformer; data without either.",
        default="auto",
        is_identity=True,
        idle=_OTHER_NETWORK,
    )


@settings_class
class ModuleSettings(NetworkSettings):
    """A model for images and tables, or a LightningModule in its place."""

    ORDER: ClassVar = ("architecture", "module", "module_arguments", "model_code", "initial_model", "initial_weights")

    module: str | None = input_port(
        'FILE.py:CLASS in the folder "model_code": a LightningModule of yours, trained in place of "architecture". It '
        "defines training_step and configure_optimizers, so that optimizer, learning_rate, momentum, weight_decay, "
        "label_smoothing, warmup_fraction and schedule have no effect on it; nor has clip_norm if it makes its "
        "optimizer steps itself. And it defines forward, which is what the saved model does. Batches are (rows, y): "
        "standardised rows, images channels-first, and classes as whole numbers or the targets. What it logs as "
        "val_NAME is reported as validation_NAME, over the rows of all ranks.",
        default=None,
        is_identity=True,
    )
    module_arguments: str | None = input_port(
        'JSON object with the arguments of the class, such as {"hidden": 64}. Parameters called input_shape and '
        "num_outputs get the shape of a row and the number of classes, if they are not in it.",
        default=None,
        is_identity=True,
    )


@settings_class
class BaseModelSettings:
    """A model of Hugging Face's to go on from, or one that begins with random weights."""

    base_model: Path | None = input_port(
        "Folder with the model to go on from: config.json, model.safetensors and tokenizer.json, as save_pretrained "
        "writes them. A head for the data's classes is new if the model has none. Leave it empty to begin with random "
        "weights.",
        default=None,
    )
    base_config: Path | None = input_port(
        "Folder with the config.json of a model that begins with random weights. Leave it empty as well for a small "
        "model: 2 layers of ModernBERT to classify, 4 of Llama to write, with vectors of 128.",
        default=None,
    )


@settings_class
class DecoderSizes:
    """How large a language model is, or which one it goes on from."""

    base_model: Path | None = input_port(
        "Folder with a Llama or Mistral to go on from, as transformers' save_pretrained writes it and as the trained "
        "model has it in artifacts/model/huggingface: config.json and safetensors, whose sizes are the model's. "
        "Prepare the text with its tokenizer. Each GPU reads the parts that it holds. Leave it empty to begin with "
        "random weights.",
        default=None,
        idle=(_OF_TEXT,),
    )
    layers: int = input_port(
        "Blocks of the model, each attention and a perceptron.", default=4, least=1, is_identity=True
    )
    width: int = input_port(
        "Size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million parameters, 12 of "
        "768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top.",
        default=128,
        least=2,
        is_identity=True,
    )
    heads: int = input_port("Heads of the attention.", default=4, least=1, is_identity=True)
    key_value_heads: int | None = input_port(
        "Heads of keys and values, where several heads of queries are to share one (grouped-query attention). Must "
        "divide the heads. Leave it empty for as many as heads.",
        default=None,
        least=1,
        is_identity=True,
        idle=(_OF_TEXT,),
    )
    feed_forward_width: int | None = input_port(
        "Hidden size of a block's perceptron. Leave it empty for 8/3 of the width.",
        default=None,
        least=1,
        is_identity=True,
        idle=(_OF_TEXT,),
    )
    context_length: int | None = input_port(
        "Longest sequence of tokens that the model takes, as long as those of the data at least. Leave it empty for "
        "the same.",
        default=None,
        least=1,
        unit="tokens",
        idle=(_OF_TEXT,),
    )
    tie_embeddings: bool = input_port(
        "Use one matrix for the tokens that come in and those that go out: fewer parameters, better in small models.",
        default=False,
        is_identity=True,
        idle=(_OF_TEXT,),
    )


_MOST_CHARACTERS = 2**24  # of a config.json: far above real ones
_SIZES_IN_CONFIG = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "feed_forward_width": "intermediate_size",
    "tie_embeddings": "tie_word_embeddings",
}
"""Names of the sizes in the config.json of a model of transformers."""


def sizes_of_base(sizes: DecoderSizes) -> DecoderSizes:
    """Give the sizes of the model that is gone on from, which are those that train; without one, `sizes` themselves.

    Raises:
        Refusal: if its config.json cannot be read, or says another size than was asked for; all of them are named.
    """
    if sizes.base_model is None:
        return sizes
    path = sizes.base_model / "config.json"
    try:
        with path.open(encoding="utf-8") as file:
            config = json.loads(file.read(_MOST_CHARACTERS))  # of a larger one it says that it has no end
        there = {name: config.get(key) for name, key in _SIZES_IN_CONFIG.items()}
        there = {name: int(value) for name, value in there.items() if value is not None}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Refusal(
            f"base_model {sizes.base_model} cannot be read: {error}. Give a folder with the config.json and the "
            "safetensors of a Llama or Mistral."
        ) from error
    there["tie_embeddings"] = bool(there.get("tie_embeddings"))
    asked = {name: (getattr(sizes, name), getattr(DecoderSizes(), name)) for name in there}
    wrong = [
        f"{name} {asked[name][0]} is asked for, and it has {value}"
        for name, value in there.items()
        if asked[name][0] not in (asked[name][1], value)
    ]
    if wrong:
        raise Refusal(f"base_model {sizes.base_model} has other sizes: {'; '.join(wrong)}. Leave these inputs out.")
    return replace(sizes, **there)
