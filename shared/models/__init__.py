"""Models without distributed code: a small zoo, bring-your-own, and saving to a folder that MLflow serves.

Nothing here needs the rest of `shared`: a copy of this package travels in each saved model and rebuilds it there. The
zoo of this package is torch's; `shared.models.keras` has the same in Keras, for nodes that may have no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .card import ModelCard

if TYPE_CHECKING:
    from .build import ZOO, NormalisedModel, build_network
    from .decoder import DecoderModel, DecoderSettings
    from .package import check_saveable, load_model, save_model

_NEED_TORCH = {
    **dict.fromkeys(("ZOO", "NormalisedModel", "build_network"), "build"),
    **dict.fromkeys(("DecoderModel", "DecoderSettings"), "decoder"),
    **dict.fromkeys(("check_saveable", "load_model", "save_model"), "package"),
}
"""In which module each is; imported when it is asked for, since torch takes a second of each rank and 200 MB."""

__all__ = [
    "ZOO",
    "DecoderModel",
    "DecoderSettings",
    "ModelCard",
    "NormalisedModel",
    "build_network",
    "check_saveable",
    "load_model",
    "save_model",
]


def __getattr__(name: str) -> object:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_NEED_TORCH[name]}", __name__), name)
