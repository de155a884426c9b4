"""Which model is trained: a small one of ours, the user's own, or a language model of a given size."""

from __future__ import annotations

from pathlib import Path

from shared.settings.fields import Idle, Situation, input_port, settings_class

_OF_TEXT = Idle("the data is no text", lambda now: not now.is_text)


def _has_own_code(now: Situation) -> bool:
    return now.values.get("module") is not None or (".py:" in now.values["architecture"] and not now.is_text)


_WITHOUT_OWN_CODE = Idle("the model is one of this library", lambda now: not _has_own_code(now))


@settings_class
class NetworkSettings:
    """A model for images and tables."""

    architecture: str = input_port(
        'mlp, resnet, vit, or FILE.py:FUNCTION in the folder "model_code". Tables take mlp, since resnet and vit are '
        "for images. The function takes (input_shape, num_outputs) and returns a torch.nn.Module for channels-first "
        "batches.",
        default="mlp",
        is_identity=True,
        idle=(Idle("the module {module} is trained in its place", lambda now: now.values.get("module") is not None),),
    )
    model_code: Path | None = input_port(
        'Folder with your model\'s code, when "architecture" is FILE.py:FUNCTION; otherwise it has no effect.',
        default=None,
        idle=(_WITHOUT_OWN_CODE,),
    )


@settings_class
class DecoderSizes:
    """How large a language model is."""

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
