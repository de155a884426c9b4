"""The zoo in Keras: the same architectures, built, saved and loaded in the same way. Nothing here needs torch.

A copy of this package travels in each saved model, so it imports its neighbours by relative names.
"""

from .build import ZOO, build_network
from .package import check_saveable, load_model, save_model

__all__ = ["ZOO", "build_network", "check_saveable", "load_model", "save_model"]
