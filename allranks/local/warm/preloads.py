"""What is worth importing before a script runs, as its text tells, and whether that could make a difference to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from allranks import library
from allranks.local.snapshot import SnapshotFile

PRELOADED: Mapping[str, tuple[str, ...]] = {
    "numpy": ("numpy",),
    "torch": ("torch", "torch._dynamo"),  # making an optimizer or DistributedDataParallel imports the second
    "safetensors": ("safetensors",),
    "transformers": ("transformers", "transformers.trainer", "transformers.modeling_utils"),
    "accelerate": ("accelerate",),
    "tokenizers": ("tokenizers",),
    "sklearn": ("sklearn", "sklearn.datasets"),
    "scipy": ("scipy",),
    "pandas": ("pandas",),
    "pyarrow": ("pyarrow", "pyarrow.parquet"),
    "matplotlib": ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"),  # what saves a picture
    "PIL": ("PIL.Image",),
    "mlflow": ("mlflow", "mlflow.tracking"),
}
"""By the name that a script imports.

Left out are those whose import looks at what differs from rank to rank (lightning reads RANK), holds what a copy would
share (deepspeed a socket), or starts threads (tensorflow)."""

_OFTEN_LATE = ("numpy", "torch", "mlflow", "sklearn")
"""What a script is taken to import even where it does so in a function."""
_IMPORT = re.compile(r"^([ \t]*)(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(.+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
_NAMES = re.compile(r"\w+")
_TOUCHES_VARIABLES = re.compile("environ|putenv|unsetenv")
_SETS_VARIABLE = re.compile(
    r"environb?\[([^\]]+)\]\s*=[^=]|environb?\.(?:setdefault|pop)\(\s*([^,)]+)|"
    r"(environb?\.(?:update|clear|popitem)\(|environb?\s*\|=|putenv\(|unsetenv\(|load_dotenv\()"
)
_READS_VARIABLE = re.compile(
    r"""(?:environb?\[\s*|environb?\.get\(\s*|getenv\(\s*)(["'])\w+\1\s*(?:\](?!\s*=[^=])|[,)])|"""
    r"""(["'])\w+\2\s+(?:not\s+)?in\s+(?:os\.)?environ"""
)
_QUOTED = re.compile(r"""(["'])([A-Za-z_]\w*)\1""")
_SETS_INTERPRETER = re.compile(
    r"set_start_method|sys\.modules\[[^\]]*\]\s*=[^=]|importlib\.reload|sys\.meta_path|LD_PRELOAD|jax_platform|"
    r"builtins\.__import__|addaudithook"
)
_CHANGES_PATH = re.compile(
    r"sys\.path\s*(?:\[[^\]]*\]\s*)?\+?=[^=]|sys\.path\.(?!append\(|extend\()\w+\(|del\s+sys\.path|=\s*sys\.path\b|"
    r"from\s+sys\s+import\b.*\bpath\b"
)
"""By which what is imported next may be another module; what is appended comes after all that is installed."""
_SILENCES = re.compile(
    r"filterwarnings|simplefilter|showwarning|logging\.disable|setLevel|redirect_std|sys\.std(?:out|err)\s*="
)
"""By which what an import prints may be printed no more, or elsewhere."""
_READ_BY_LIBRARIES = (
    "ARROW_",
    "BLIS_",
    "GOMP_",
    "GOTO_",
    "JEMALLOC",
    "KMP_",
    "MKL_",
    "NUMEXPR_",
    "OMP_",
    "OPENBLAS_",
    "VECLIB_",
)
"""Begins of the names of variables that are looked at by what is not Python, so that nobody sees it."""
_READ_ON_IMPORT = (
    *("CUDA_HOME", "CUDA_LAUNCH", "HF_", "KMP_", "LD_", "MALLOC_", "MKL_", "MPLBACKEND", "MPLCONFIGDIR", "NUMEXPR_"),
    *("OMP_", "OPENBLAS_", "PYTORCH_", "TORCH", "TRANSFORMERS_", "ATEN_", "BLIS_", "GOTO_", "VECLIB_", "TMPDIR"),
    *("MLFLOW_CONFIGURE_", "MLFLOW_LOGGING_", "MLFLOW_DISABLE_", "_MLFLOW_", "DO_NOT_TRACK", "OTEL_", "DATABRICKS_"),
    *("PANDAS_", "PYDANTIC_", "PROTOCOL_BUFFERS_", "SCIPY_", "ARROW_"),
)
"""Begins of the names of variables that imports look at."""
_MOST_BYTES = 1 << 20  # of a script that is looked through


@dataclass(frozen=True, slots=True)
class Preloads:
    """What a script needs that can be there before it runs.

    Attributes:
        modules: to import; empty where none is worth it or it could make a difference.
        variables: that the script names, and may set: imports must not have looked at one.
        may_silence: whether it may keep imports from printing.
    """

    modules: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()
    may_silence: bool = False


def find_preloads(entry: str, files: Sequence[SnapshotFile]) -> Preloads:
    """What to import for a script of a snapshot.

    Args:
        entry: the script's path in the snapshot, or a module's dotted name.
        files: of the snapshot.
    """
    scripts = {file.path: file.source for file in files if file.members is None and file.path.endswith(".py")}
    named = {part for path in scripts for part in PurePosixPath(path).with_suffix("").parts}
    start = entry if entry in scripts else _local_file(entry, scripts)
    if start is None:
        return Preloads()
    found: dict[str, None] = {}
    appends_path = may_silence = False
    variables: set[str] = set()
    reached = [start]
    for path in reached:  # grows while it is read
        source = scripts[path]
        if source.stat().st_size > _MOST_BYTES:
            return Preloads()
        text = source.read_text(encoding="utf-8", errors="replace")
        if not _is_ours(path, source):
            if _may_matter(text):
                return Preloads()
            appends_path |= "sys.path" in text or "site.addsitedir" in text
            may_silence |= bool(_SILENCES.search(text))
            if _TOUCHES_VARIABLES.search(text):
                variables.update(name for _, name in _QUOTED.findall(_READS_VARIABLE.sub("", text)))
        for name, is_early in _imported_names(text, PurePosixPath(path).parent):
            top = name.partition(".")[0]
            if local := _local_file(name, scripts):
                reached += [] if local in reached else [local]
            elif top in PRELOADED and (is_early or top in _OFTEN_LATE):
                found.setdefault(top)
    if appends_path and named.intersection(found):  # a package of the user's that could stand in for one of these
        return Preloads()
    if any(name.startswith(_READ_BY_LIBRARIES) for name in variables):
        return Preloads()
    if "matplotlib" in found and any(PurePosixPath(file.path).name == "matplotlibrc" for file in files):
        return Preloads()  # it is read from the working folder
    modules = tuple(module for name in sorted(found) for module in PRELOADED[name])
    return Preloads(modules, frozenset(variables), may_silence)


def _is_ours(path: str, source: Path) -> bool:
    """Whether a file of a snapshot is one of the library's own, or a copy of it that nobody has changed."""
    own = library.root() / path
    if not path.startswith("shared/") or not own.is_file():
        return False
    return source == own or source.read_bytes() == own.read_bytes()


def _may_matter(text: str) -> bool:
    """Whether a script may set what imports look at, so that it has to run before them."""
    if _SETS_INTERPRETER.search(text) or _CHANGES_PATH.search(text):
        return True
    for match in _SETS_VARIABLE.finditer(text):
        name = (match[1] or match[2] or "").strip().lstrip("b")
        if not re.fullmatch(r"""(["'])\w+\1""", name) or name[1:].startswith(_READ_ON_IMPORT):
            return True
    return False


def _imported_names(text: str, folder: PurePosixPath) -> Iterable[tuple[str, bool]]:
    """Dotted names that may be modules, and whether they are imported when the file is, and not in a function."""
    for match in _IMPORT.finditer(text):
        is_early = not match[1]
        if match[4] is not None:
            yield from ((one.strip().split(" ")[0], is_early) for one in match[4].split(","))
            continue
        base = match[2]
        if base.startswith("."):
            level = len(base) - len(base.lstrip("."))
            parts = folder.parts[: len(folder.parts) - level + 1]
            base = ".".join([*parts, *filter(None, [base.lstrip(".")])])
        yield base, is_early
        yield from ((f"{base}.{name}" if base else name, is_early) for name in _NAMES.findall(match[3]))


def _local_file(name: str, scripts: Mapping[str, Path]) -> str | None:
    path = name.replace(".", "/")
    return next((one for one in (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py") if one in scripts), None)
