"""Which model is trained: a small one of ours, the user's own, or a language model of a given size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shared.settings.fields import Idle, Input, Situation

_OF_TEXT = Idle("the data is no text", lambda now: not now.is_text)


def _has_own_code(now: Situation) -> bool:
    return now.values.get("module") is not None or (".py:" in now.values["architecture"] and not now.is_text)


_WITHOUT_OWN_CODE = Idle("the model is one of this library", lambda now: not _has_own_code(now))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """A model for images and tables."""

    architecture: Annotated[
        str,
        Input(
            'mlp, resnet, vit, or FILE.py:FUNCTION in the folder "model_code". Tables take mlp, since resnet and vit '
            "are for images. The function takes (input_shape, num_outputs) and returns a torch.nn.Module for "
            "channels-first batches.",
            is_identity=True,
            idle=(
                Idle("the module {module} is trained in its place", lambda now: now.values.get("module") is not None),
            ),
        ),
    ] = "mlp"
    model_code: Annotated[
        Path | None,
        Input(
            'Folder with your model\'s code, when "architecture" is FILE.py:FUNCTION; otherwise it has no effect.',
            idle=(_WITHOUT_OWN_CODE,),
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """How large a language model is."""

    layers: Annotated[
        int, Input("Blocks of the model, each attention and a perceptron.", least=1, is_identity=True)
    ] = 4
    width: Annotated[
        int,
        Input(
            "Size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million parameters, 12 "
            "of 768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top.",
            least=2,
            is_identity=True,
        ),
    ] = 128
    heads: Annotated[int, Input("Heads of the attention.", least=1, is_identity=True)] = 4
    key_value_heads: Annotated[
        int | None,
        Input(
            "Heads of keys and values, where several heads of queries are to share one (grouped-query attention). Must "
            "divide the heads. Leave it empty for as many as heads.",
            least=1,
            is_identity=True,
            idle=(_OF_TEXT,),
        ),
    ] = None
    feed_forward_width: Annotated[
        int | None,
        Input(
            "Hidden size of a block's perceptron. Leave it empty for 8/3 of the width.",
            least=1,
            is_identity=True,
            idle=(_OF_TEXT,),
        ),
    ] = None
    context_length: Annotated[
        int | None,
        Input(
            "Longest sequence of tokens that the model takes, as long as those of the data at least. Leave it empty "
            "for the same.",
            least=1,
            unit="tokens",
            idle=(_OF_TEXT,),
        ),
    ] = None
    tie_embeddings: Annotated[
        bool,
        Input(
            "Use one matrix for the tokens that come in and those that go out: fewer parameters, better in small "
            "models.",
            is_identity=True,
            idle=(_OF_TEXT,),
        ),
    ] = False
