"""Models without distributed code: a small zoo, bring-your-own, and saving to a folder that MLflow serves.

Nothing here needs the rest of `shared`: a copy of this package travels in each saved model and rebuilds it there. The
zoo of this package is torch's; `shared.models.keras` has the same in Keras.
"""

from .card import ModelCard

try:
    from .build import ZOO, NormalisedModel, build_network
    from .decoder import DecoderModel, DecoderSettings
    from .package import check_saveable, load_model, save_model
except ModuleNotFoundError as error:
    if error.name != "torch":  # a node that trains with TensorFlow has none, and needs the rest
        raise

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
