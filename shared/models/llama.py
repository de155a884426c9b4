"""The decoder as Hugging Face's transformers knows it: it is a Llama, by other names.

`config.json` and the names of the tensors are those of ``LlamaForCausalLM``; a folder of one, or of a Mistral, which is
the same model, is read too. What the decoder does not have is refused: biases, quantised weights, other activations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from .decoder import DecoderModel, DecoderSettings
from .stored import MOST_JSON_BYTES, make_refusal, read_stored
from .weight_files import SavedTensor

_OUTSIDE: Final = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"} | {
    "head.weight": "lm_head.weight"
}
_IN_BLOCK: Final = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "feed_norm": "post_attention_layernorm",
    "feed.gate": "mlp.gate_proj",
    "feed.up": "mlp.up_proj",
    "feed.down": "mlp.down_proj",
}
_KINDS: Final = ("llama", "mistral")
_NEUTRAL_EPSILON: Final = torch.finfo(torch.float32).eps
"""What torch's norms add where nothing is said, in float32."""


def llama_name(name: str) -> str:
    """Name in transformers of a parameter of the decoder."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    _, number, inside = name.split(".", 2)
    return f"model.layers.{number}.{_IN_BLOCK[inside.removesuffix('.weight')]}.weight"


def llama_tensors(settings: DecoderSettings, dtype: torch.dtype) -> list[SavedTensor]:
    """All parameters of a whole decoder as they are saved, by their names in transformers, in a fixed order."""
    named = DecoderModel(settings).named_parameters()
    return [SavedTensor(llama_name(name), tuple(parameter.shape), dtype) for name, parameter in named]


def write_llama_config(folder: Path, settings: DecoderSettings, dtype: torch.dtype, end_of_text: int | None) -> None:
    """Write `config.json`; `end_of_text` is the token that ends a text, None if that is not known."""
    scaled = settings.rope_factor != 1
    scaling = {
        "rope_type": "llama3",
        "factor": settings.rope_factor,
        "low_freq_factor": settings.rope_low,
        "high_freq_factor": settings.rope_high,
        "original_max_position_embeddings": settings.rope_length,
    }
    document = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": settings.vocabulary,
        "hidden_size": settings.width,
        "intermediate_size": settings.feed_forward_width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.key_value_heads,
        "head_dim": settings.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": settings.context_length,
        "rms_norm_eps": settings.norm_epsilon or _NEUTRAL_EPSILON,
        "rope_theta": settings.rope_theta,
        "rope_scaling": scaling if scaled else None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": settings.tied,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    from shared.storage import write_text

    write_text(folder / "config.json", json.dumps(document, indent=2) + "\n")


def read_llama_config(folder: Path) -> DecoderSettings:
    """Read the sizes of a decoder from the `config.json` of a folder.

    Raises:
        Refusal: if it is of another model, or has something that the decoder has not; all of it is named.
    """
    path = folder / "config.json"
    try:
        config: dict[str, Any] = json.loads(read_stored(path, MOST_JSON_BYTES))
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        problems = _misfits(config, rope)
        if problems:
            raise make_refusal(
                f"{path} is not of a model that the decoder can be: {'; '.join(problems)}. Give a Llama or a Mistral, "
                "or train the model with train_transformers."
            )
        scaled = rope.get("rope_type", rope.get("type")) == "llama3"
        positions = int(config.get("max_position_embeddings", 2048))
        return DecoderSettings(
            vocabulary=int(config["vocab_size"]),
            context_length=min(positions, int(config.get("sliding_window") or positions)),
            layers=int(config["num_hidden_layers"]),
            width=int(config["hidden_size"]),
            heads=int(config["num_attention_heads"]),
            key_value_heads=int(config.get("num_key_value_heads") or 0),
            feed_forward_width=int(config["intermediate_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
            rope_factor=float(rope["factor"]) if scaled else 1.0,
            rope_low=float(rope["low_freq_factor"]) if scaled else 1.0,
            rope_high=float(rope["high_freq_factor"]) if scaled else 4.0,
            rope_length=int(rope["original_max_position_embeddings"]) if scaled else 8192,
        )
    except (OSError, KeyError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise make_refusal(f"{path} cannot be read as the configuration of a model: {error!r}.") from error


def _misfits(config: Mapping[str, Any], rope: Mapping[str, Any]) -> list[str]:
    """What the decoder has not, of what a configuration asks for."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    heads = config.get("num_attention_heads") or 1
    width = config.get("hidden_size") or 0
    wanted = {
        "model_type": (config.get("model_type"), _KINDS),
        "hidden_act": (config.get("hidden_act", "silu"), ("silu",)),
        "attention_bias": (bool(config.get("attention_bias")), (False,)),
        "mlp_bias": (bool(config.get("mlp_bias")), (False,)),
        "rope_type": (kind, ("default", "llama3")),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1), (1,)),
        "head_dim": (config.get("head_dim") or width // heads, (width // heads,)),
        "quantization_config": (bool(config.get("quantization_config")), (False,)),
    }
    return [
        f"{name} is {value!r}, the decoder's {' or '.join(map(repr, allowed))}"
        for name, (value, allowed) in wanted.items()
        if value not in allowed
    ]
