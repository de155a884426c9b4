"""Models of Hugging Face's transformers: built and saved without pickle, and without code that a folder brings along.

A copy of this package travels in each saved model, so it imports its neighbours by relative names.
"""

from .module import TokenModel, mask_of
from .package import load_model, save_model

__all__ = ["TokenModel", "load_model", "mask_of", "save_model"]
