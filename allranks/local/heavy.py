"""What a snapshot hardly needs: more than 100 MB, models, logs. Every node gets a copy, and a submission uploads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from allranks import catalogue
from allranks.errors import Problem
from allranks.local import snapshot
from allranks.local.ignore import IGNORE_FILES
from allranks.spec import Component

LARGEST_SNAPSHOT = 100_000_000  # bytes; a larger snapshot is warned of
_SMALL = 1_000_000  # bytes; a smaller file is not taken for a model or a log: code has such files for its tests
_MODELS_AND_LOGS = frozenset(
    [".bin", ".ckpt", ".h5", ".joblib", ".keras", ".log", ".onnx", ".pkl", ".pt", ".pth", ".safetensors"]
)
_LOG_FOLDERS = frozenset(["lightning_logs", "mlruns", "wandb"])
_LOG_FILES = ("events.out.tfevents.", "mlflow.db")  # how their names begin
_NAMED = 5  # so many of them stand in a warning, the largest first


def heavy_snapshots(components: Iterable[Component]) -> list[Problem]:
    """Return a warning for each snapshot that is large, holds models or logs, or follows links out of the code folder.

    Raises:
        StorageError: a snapshot cannot be listed.
    """
    library = catalogue.component_files()  # to list the files of these would take longer than to start a step
    own = (one for one in components if one.source.file is None or one.source.file != library.get(one.name))
    found = {(one.code, one.includes): one for one in own if one.code is not None or one.includes}
    return [problem for one in found.values() for problem in (_warning(one), _leaving_links(one)) if problem]


def _warning(component: Component) -> Problem | None:
    files = [file for file in snapshot.snapshot_files(component) if file.members is None]
    total, parts, tops = 0, Counter[str](), Counter[str]()
    for file in files:
        if not file.source.exists():  # deleted since it was listed
            continue
        size = file.source.stat().st_size
        total += size
        top, _, below = file.path.partition("/")
        tops[f"{top}/" if below else top] += size
        if part := _model_or_log(PurePosixPath(file.path), size):
            parts[part] += size
    if not parts and total <= LARGEST_SNAPSHOT:
        return None
    what = [name for name, _ in parts.most_common(_NAMED)] or [tops.most_common(1)[0][0]]
    listed = ", ".join(f"{name} ({_megabytes(parts[name] or tops[name])})" for name in what)
    holds = "models or logs" if parts else "much"
    message = f"the snapshot of {component.name}, {_megabytes(total)} in {len(files)} files, holds {holds}: {listed}."
    return component.source.problem("code", message, _hint(component, what), "warning")


def _leaving_links(component: Component) -> Problem | None:
    """Return a warning that names files from outside the code folder: azure-ai-ml uploads what a link leads to."""
    roots = [path.resolve() for path in (component.code, *component.includes) if path is not None]
    files = snapshot.snapshot_files(component)
    real = {file.path: file.source.resolve() for file in files}
    left = [path for path, place in real.items() if not any(place.is_relative_to(root) for root in roots)]
    if not left:
        return None
    listed = ", ".join(f"{path} -> {real[path]}" for path in left[:_NAMED])
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    message = f"links lead out of the code folder, and what they lead to is sent: {listed}{more}."
    return component.source.problem(
        "code", message, "Remove the links; a linked file can be named in .amlignore, too.", "warning"
    )


def _model_or_log(path: PurePosixPath, size: int) -> str:
    """The folder or file that is a model or a log, a folder with a slash at its end; empty for anything else."""
    for depth, folder in enumerate(path.parts[:-1], start=1):
        if folder in _LOG_FOLDERS:
            return "/".join(path.parts[:depth]) + "/"
    large = path.suffix in _MODELS_AND_LOGS and size >= _SMALL
    return str(path) if large or path.name.startswith(_LOG_FILES) else ""


def _hint(component: Component, what: Sequence[str]) -> str:
    root = component.source.base if component.code is None else component.code
    root = root if root.is_dir() else root.parent
    there = [root / name for name in IGNORE_FILES if (root / name).is_file()]  # only the first that is there counts
    file: Path = there[0] if there else root / IGNORE_FILES[0]
    lines = ", ".join(repr(f"/{name}") for name in what)
    return f"Each node and each submission copies it; in {file} leave out what the step does not need: {lines}."


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
