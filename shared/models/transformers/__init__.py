"""Models of Hugging Face's transformers: built and saved without pickle, and without code that a folder brings along.

A copy of this package travels in each saved model, so it imports its neighbours by relative names.
"""

from .module import TokenModel, attention_mask
from .package import finish_transformer, load_model

__all__ = ["TokenModel", "attention_mask", "finish_transformer", "load_model"]
