"""Nearest names, for the hint of an error."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# How people coming from Python, other schemas and older versions of Azure ML call these types and keys.
_OTHER_WORDS = {
    "integer": ("int", "long"),
    "number": ("float", "double"),
    "string": ("str", "text"),
    "boolean": ("bool",),
    "uri_file": ("file", "anyfile"),
    "uri_folder": ("folder", "directory", "anydirectory"),
    "custom_model": ("model",),
    "jobs": ("steps",),
    "environment": ("env",),
    "process_count_per_instance": ("process_count_per_node", "processes_per_node"),
    "instance_count": ("instances", "node_count", "nodes"),
    "type": ("job_service_type",),
}
_ALIASES = {other: word for word, others in _OTHER_WORDS.items() for other in others}


def nearest_name(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that was probably meant by ``word``, or None."""
    by_folded = {choice.lower().replace("-", "_"): choice for choice in choices}
    folded = word.lower().replace("-", "_")
    if folded in by_folded:
        return by_folded[folded]
    if _ALIASES.get(folded) in by_folded:
        return by_folded[_ALIASES[folded]]
    # A word that is longer or shorter by a part (rerun, force_rerun) is looser than a slip of the keys.
    close = get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    if not close or not (folded in close[0] or close[0] in folded or get_close_matches(folded, close, cutoff=0.7)):
        return None
    return by_folded[close[0]]


def nearest_hint(word: str, choices: Iterable[str]) -> str:
    """Write the hint for an unknown ``word``: the nearest choice; empty without one that is near."""
    near = nearest_name(word, choices)
    return "" if near is None else f"Did you mean '{near}'?"


def did_you_mean(word: str, choices: Iterable[str], plural: str) -> str:
    """Write the hint for an unknown ``word``: the nearest choice, else all the choices (at most twelve)."""
    known = sorted(choices)
    if hint := nearest_hint(word, known):
        return hint
    if not known:
        return f"There are no {plural}."
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"The {plural} are: {shown}."
