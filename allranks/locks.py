"""The exact versions of every environment, and of the tested set: ``python -m allranks.renew --locks`` writes them.

uv resolves. One resolution of everything (the project with its extras, the environments, what their images add) is
``constraints.txt``, so that a package has one version wherever it is tested or shipped. The ``lock.txt`` of an
environment is the part of it that ``requirements.txt`` and ``optional.txt`` need; ``image-lock.txt`` is what
``image.txt`` adds to that.

What torch's build for CUDA needs is left out: torch pins it exactly itself, each of its builds other versions, and the
build for the CPU none. For the same reason versions are without a local part (``2.13.0``, not ``2.13.0+cpu``) and
files without hashes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

from packaging.markers import Marker

from allranks import catalogue, library
from allranks.errors import CannotRunHereError
from allranks.files import write_text
from allranks.local import environments

_IMAGE_LOCK = "image-lock.txt"
_LISTS = ("requirements.txt", "optional.txt")
"""What an environment asks for: always, and for some uses only."""
_IMAGE_LIST = "image.txt"
"""What only the image on Azure ML has besides."""

_BUILT = re.compile(r"^horovod\b", re.MULTILINE)
"""Not to be resolved: no index has a build of it that works, so environments/horovod/install.py builds it."""
_CUDA = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton\b)")
_PLATFORMS = [
    {
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for minor, machine in product((11, 12, 13), ("x86_64", "aarch64"))
]
_MADE = "# Made by `make locks`; exact versions of all that is installed.\n"


def renew_locks(*, upgrade: bool = False) -> list[Path]:
    """Resolve everything anew, write the files that changed, and return these; asks the index, so takes a minute.

    ``upgrade`` takes the newest versions in the ranges, instead of keeping those that are written down. Raises
    CannotRunHereError if uv is missing, or found no solution, with its own words.
    """
    root = library.root()
    constraints = root / "constraints.txt"
    comment = "".join(line for line in constraints.read_text().splitlines(keepends=True) if line.startswith("#"))
    lists = [each for name in catalogue.ENVIRONMENTS for each in _requirement_lists(name, image=True)]
    kept = {} if upgrade else read_pins(constraints)
    pins = _resolve([root / "pyproject.toml", *lists], kept, extra="dev", plain=True)
    made = {constraints: comment + _lines(pins)}
    for name, path in catalogue.environment_files().items():
        folder = path.parent
        lock = _resolve(_requirement_lists(name), pins, strict=True)
        made[folder / environments.LOCK_FILE] = _MADE + _lines(lock)
        if (folder / _IMAGE_LIST).is_file():
            before = {} if upgrade else read_pins(folder / _IMAGE_LOCK)
            image = _resolve(_requirement_lists(name, image=True), {**before, **pins}, strict=True)
            made[folder / _IMAGE_LOCK] = _MADE + _lines({one: pin for one, pin in image.items() if one not in lock})
    changed = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    for path in changed:
        write_text(path, made[path])
    return changed


def _requirement_lists(name: str, *, image: bool = False) -> list[Path]:
    """The files that say what an environment asks for; with ``image`` what its image adds, too."""
    folder = catalogue.environment_files()[name].parent
    names = (*_LISTS, _IMAGE_LIST) if image else _LISTS
    return [folder / each for each in names if (folder / each).is_file()]


def read_pins(path: Path) -> dict[str, str]:
    """The lines of a lock by the name of their package: ``numpy`` to ``==2.4.6``; empty if there is no such file."""
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: sign + pin for name, sign, pin in (line.partition("==") for line in lines if "==" in line[:80])}


def _resolve(
    sources: Iterable[Path], pins: Mapping[str, str], *, extra: str = "", plain: bool = False, strict: bool = False
) -> dict[str, str]:
    """What uv installs for these lists, of which the first may be ``pyproject.toml``, with one of its extras.

    ``pins`` are the preferred versions; with ``strict`` the only ones allowed, for the packages among them. ``plain``
    asks for packages without their extras, whose CUDA libraries would constrain torch's.
    """
    with tempfile.TemporaryDirectory() as work:
        copies = [_copy(path, Path(work), number, plain=plain) for number, path in enumerate(sources)]
        out = Path(work, "out.txt")
        out.write_text(_lines(pins))
        Path(work, "pins.txt").write_text(_lines(pins))
        command = [_uv(), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-annotate"]
        command += ["--no-header", "--output-file", str(out), *(["--extra", extra] if extra else [])]
        command += ["--constraint", str(Path(work, "pins.txt"))] if strict else []
        done = subprocess.run([*command, *map(str, copies)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotRunHereError(f"uv could not resolve {', '.join(map(str, sources))}:\n{done.stderr.strip()}")
        found = read_pins(out)
    needed = {name: _pin(pin) for name, pin in found.items() if not ("torch" in found and _CUDA.match(name))}
    return {name: pin for name, pin in needed.items() if pin}


def _copy(path: Path, work: Path, number: int, *, plain: bool) -> Path:
    """A list that uv can resolve: without what is built here, and perhaps without extras."""
    if path.suffix == ".toml":
        return path
    text = "".join(line for line in path.read_text().splitlines(keepends=True) if not _BUILT.match(line))
    copy = work / f"{number}.in"
    copy.write_text(re.sub(r"^([\w-]+)\[[\w,-]+\]", r"\1", text, flags=re.MULTILINE) if plain else text)
    return copy


def _pin(pin: str) -> str:
    """A pin without a marker that always holds where we run; empty if it never holds; without a local version."""
    version, _, marker = (part.strip() for part in pin.partition(";"))
    version = version.partition("+")[0]
    holds = [not marker or Marker(marker).evaluate(platform) for platform in _PLATFORMS]
    if all(holds):
        return version
    return f"{version} ; {marker}" if any(holds) else ""


def _lines(pins: Mapping[str, str]) -> str:
    return "".join(f"{name}{pins[name]}\n" for name in sorted(pins))


def _uv() -> str:
    uv = environments.find_uv()
    if uv is None:
        message = "uv, which resolves the versions, is not on this machine."
        raise CannotRunHereError(message, "Install it: pip install uv")
    return uv
