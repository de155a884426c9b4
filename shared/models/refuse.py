"""The error for what a user asked that cannot be."""

from __future__ import annotations


def make_refusal(message: str) -> Exception:
    """Make the error that a component prints without a traceback; a ValueError where a saved model stands alone."""
    try:
        from shared.distributed import Refusal
    except ImportError:
        return ValueError(message)
    return Refusal(message)
