"""What a run's own files have to look like: they lie in a folder that anybody may have written, or changed by hand.

A file that does not fit is as good as none, so that those who read it need not look at each value again.
"""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from allranks.local.folders import is_plain_name
from allranks.spec.budget import current_budget

Shape: TypeAlias = Callable[[Any, str], Iterator[str]]
"""Says of a value and its place what is wrong with it."""

_MOST_NUMBER = 2**63
"""Sizes, times and steps have less; JSON's numbers have no end, and cannot be reckoned with beyond a double."""


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""What JSON has no number for."""


def _of(what: str, fits: Callable[[Any], bool]) -> Shape:
    def check(value: Any, where: str) -> Iterator[str]:
        if not fits(value):
            yield f"{where}: {json.dumps(value)[:60]} is not {what}"

    return check


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and abs(value) < _MOST_NUMBER and math.isfinite(value)


def _is_logged(value: Any) -> bool:
    """Whether it is a number of any size that a script may have logged."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and abs(value) <= sys.float_info.max


def _is_words(value: Any) -> bool:
    """Whether it is a text without halves of characters, but for bytes of names that are not UTF-8."""
    try:
        return isinstance(value, str) and bool(value.encode(errors="surrogateescape") or True)
    except UnicodeEncodeError:
        return False


def _is_text(value: Any) -> bool:
    """Whether it is a text that a path may be."""
    return _is_words(value) and "\0" not in value


def _or_none(shape: Shape) -> Shape:
    return lambda value, where: iter(()) if value is None else shape(value, where)


def _each(shape: Shape, name: Shape | None = None) -> Shape:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: is no object"
            return
        for key, inner in value.items():
            yield from (name or _TEXT)(key, where)
            yield from shape(inner, f"{where}.{key}")

    return check


def _items(shape: Shape) -> Shape:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{where}: is no list"
            return
        for number, inner in enumerate(value):
            yield from shape(inner, f"{where}.{number}")

    return check


def _fields(needed: Mapping[str, Shape], others: Mapping[str, Shape]) -> Shape:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: is no object"
            return
        yield from (f"{where}: has no {name!r}" for name in needed if name not in value)
        for name, shape in {**needed, **others}.items():
            if name in value:
                yield from shape(value[name], f"{where}.{name}")

    return check


_TEXT = _of("a text", _is_text)
_FLAG = _of("true or false", lambda value: isinstance(value, bool))
_NUMBER = _of("a number", _is_number)
_COUNT = _of("a number from 0 on", lambda value: _is_number(value) and isinstance(value, int) and value >= 0)
_WORDS = _of("a text", _is_words)
_SCALAR = _of("a text, a number, true or false", lambda v: isinstance(v, bool) or _is_logged(v) or _is_words(v))
_NAME = _of("a name of a file", is_plain_name)
_NAME_OR_EMPTY = _of("a name of a file", lambda value: value == "" or is_plain_name(value))
_METRIC = _of("a number", lambda value: value in _NOT_FINITE if isinstance(value, str) else _is_logged(value))
_PATHS = _each(_TEXT, _NAME)
_PAIRS = _each(_WORDS)
_METRICS = _each(_METRIC)
_MOMENT = _or_none(_NUMBER)

_FAILURE = _fields(
    {"message": _WORDS, "log": _or_none(_TEXT), "last_lines": _items(_WORDS)},
    {"rank": _or_none(_COUNT), "node": _or_none(_COUNT)},
)
_CHILD = _fields({"status": _TEXT, "metrics": _METRICS}, {"params": _PAIRS, "tags": _PAIRS, "name": _WORDS})
_TRIAL = _fields(
    {"number": _COUNT},
    {"status": _TEXT, "folder": _TEXT, "seconds": _NUMBER, "reused_from": _or_none(_NAME)}
    | {"values": _each(_SCALAR), "metric": _or_none(_METRIC)},
)
_ATTEMPT = _fields({}, {"started": _MOMENT, "seconds": _MOMENT, "status": _or_none(_TEXT), "nodes": _each(_MOMENT)})
_LOGGED: Mapping[str, Shape] = {
    "metrics": _METRICS,
    "params": _PAIRS,
    "tags": _PAIRS,
    "child_runs": _items(_CHILD),
    "parameters": _each(_SCALAR),
    "mlflow_run_id": _or_none(_TEXT),
    "trials": _items(_TRIAL),
    "goal": _TEXT,
    "primary_metric": _TEXT,
    "max_total_trials": _or_none(_COUNT),
    "best_trial": _or_none(_COUNT),
    "decision": _or_none(_FLAG),
}
_STEP_FIELDS: Mapping[str, Shape] = {
    "seconds": _NUMBER,
    "outputs": _PATHS,
    "failure": _or_none(_FAILURE),
    "after": _items(_TEXT),
    "folder": _TEXT,
    "started": _MOMENT,
    "reused": _FLAG,
    "reused_from": _or_none(_NAME),
    "attempts": _COUNT,
    "nodes": _COUNT,
    "processes": _COUNT,
    "component": _TEXT,
    **_LOGGED,
}
_OWN_FIELDS: Mapping[str, Shape] = {
    "command": _WORDS,
    "variables": _PAIRS,
    "environment": _or_none(_WORDS),
    "python": _TEXT,
    "key": _or_none(_NAME_OR_EMPTY),
    "identity": _each(_TEXT),
    "continues": _TEXT,
    "kept_outputs": _items(_NAME),
    "code": _items(_TEXT),
    "inputs": _each(_or_none(_SCALAR)),
    "input_sources": _each(_fields({}, {"kind": _TEXT, "words": _WORDS})),
    "attempt_times": _items(_ATTEMPT),
    "snapshot_hash": _TEXT,
}
_STATUS = {"status": _TEXT}
_RUN = _fields(
    {"run_id": _NAME, "status": _TEXT, "steps": _each(_fields(_STATUS, _STEP_FIELDS), _NAME)},
    {"started": _MOMENT, "ended": _MOMENT, "outputs": _PATHS, "run_dir": _TEXT, "name": _TEXT, "target": _TEXT}
    | {"message": _TEXT, "values": _each(_or_none(_SCALAR)), "scale": _each(_items(_COUNT)), "only": _items(_WORDS)},
)
_SPAN = _of("a number above 0", lambda value: _is_number(value) and value > 0)
_SUMS = ("cpu_seconds", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes")
_USED = {"at": _NUMBER, "over": _SPAN, **dict.fromkeys(_SUMS, _NUMBER)}
_LOOKED = {"rss_bytes": _NUMBER, "processes": _COUNT, "threads": _COUNT}
_SAMPLES: Mapping[str, Shape] = {
    "note": _fields({"note": _TEXT}, {}),
    "step": _fields(_USED, {**_LOOKED, "peak_bytes": _NUMBER}),
    "launcher": _fields(_USED, {**_LOOKED, "peak_bytes": _NUMBER}),
    "rank": _fields({**_USED, "rank": _COUNT, "node": _COUNT}, {**_LOOKED, "peak_bytes": _NUMBER}),
    "gpu": _fields(
        {"at": _NUMBER, "over": _SPAN, "gpu": _TEXT, "gpu_seconds": _NUMBER, "gpu_memory_bytes": _NUMBER}, {}
    ),
}
_SHAPES: Mapping[str, Shape] = {
    "run.json": _RUN,
    "page.json": _RUN,
    "step.json": _fields({}, {**_STATUS, **_STEP_FIELDS, **_OWN_FIELDS}),
    "trials.json": _items(
        _fields(
            {"key": _NAME_OR_EMPTY, "run": _NAME, "status": _TEXT, "message": _WORDS, "parameters": _each(_SCALAR)}, {}
        )
    ),
    "cache/": _fields(
        {"run_id": _NAME, "step": _NAME, "execution": _TEXT, "outputs": _each(lambda *_: iter(()), _NAME)}, {}
    ),
    "assets/": _fields({"versions": _each(_fields({"path": _TEXT}, {}))}, {}),
}


def read_json_file(path: Path) -> Any:
    """Read a JSON file; None when it is not there, not JSON, or not what a file of its name has to hold."""
    document, fault = _read_record(path)
    return None if fault else document


def is_resource_sample(sample: Any) -> bool:
    """Whether a line of resources.jsonl is one that can be reckoned with."""
    of = sample.get("of") if isinstance(sample, dict) else None
    if not isinstance(of, str) or of not in _SAMPLES or any(_SAMPLES[of](sample, of)):
        return False
    looks = [name for name in _LOOKED if name in sample]
    return len(looks) in (0, len(_LOOKED))


def find_record_fault(path: Path) -> str:
    """What is wrong with a file, as a sentence goes on after its name; empty if nothing is, or if it is not there."""
    return _read_record(path)[1] if path.exists() or path.is_symlink() else ""


def _read_record(path: Path) -> tuple[Any, str]:
    try:
        about, budget = path.stat(), current_budget()
        if not stat.S_ISREG(about.st_mode):  # a pipe would be waited for
            return None, "is no file"
        if about.st_size > budget.record_bytes:
            raise_hint = budget.how_to_raise("record_bytes")
            return None, f"has {about.st_size:,} bytes, more than {budget.record_bytes:,}. {raise_hint}"
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return None, f"cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON: {error}"
    shape = _SHAPES.get(path.name) or _SHAPES.get(f"{path.parent.name}/")
    wrong = next(shape(document, path.stem), "") if shape is not None else ""
    return document, f"is damaged: {wrong}" if wrong else ""
