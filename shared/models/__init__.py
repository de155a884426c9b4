"""Models without distributed code: a small zoo, bring-your-own, and saving to a folder that MLflow serves.

Nothing here needs the rest of `shared`: a copy of this package travels in each saved model and rebuilds it there.
"""

from .build import ZOO, Normalised, build
from .card import Card
from .package import check_saveable, load_model, save_model

__all__ = ["ZOO", "Card", "Normalised", "build", "check_saveable", "load_model", "save_model"]
