"""The environments that other people's steps ask for, each built once into ``.allranks/environments/<name>-<key>``.

The key is made of all that decides what is installed, so steps and runs that ask for the same share it, and one that
is there is the right one. ``built.json`` in it is written last: what has none is not whole, and is built anew.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from allranks.errors import CannotRunHereError, UsageError
from allranks.files import write_text
from allranks.local import fingerprint
from allranks.local.environments.building import (
    awaited_builder,
    guarded_commands,
    has_gpu,
    run_command,
    uv_command,
)
from allranks.local.environments.conda import spec_name
from allranks.local.environments.pip_lines import is_named, line_name
from allranks.local.environments.recipe import EnvironmentRecipe
from allranks.local.private_files import make_private_folder

BUILT_FILE = "built.json"
_OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_TORCH_INDEX = "download.pytorch.org"
_GUILTY = re.compile(
    r"([\w.-]+) was not found in|no versions? of ([\w.-]+)|Failed to (?:build|download|fetch) `([\w.-]+)"
)
_FORMAT = 1  # of the key: raise it when the same recipe is installed otherwise


@dataclass(frozen=True, slots=True)
class StepEnvironment:
    """One environment on this machine, built or not.

    Attributes:
        folder: where it is, or will be.
    """

    recipe: EnvironmentRecipe
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter, which is there once it is built."""
        return self.folder / "bin" / "python"

    @property
    def version(self) -> str:
        """The version of Python that it has, such as 3.11."""
        return self.recipe.python or _OWN_VERSION

    @property
    def is_built(self) -> bool:
        """Whether it is whole."""
        return (self.folder / BUILT_FILE).is_file()

    @property
    def left_out(self) -> tuple[str, ...]:
        """The lines that it was built without, because the user said so."""
        return tuple(_stamp(self.folder).get("without", ()))

    @property
    def unmet(self) -> tuple[str, ...]:
        """What it asks for and has not, or will not have, since pip cannot give it and no conda is here."""
        if self.is_built:
            return tuple(_stamp(self.folder).get("unmet", ()))
        return () if _by_conda(self.recipe, ()) else self.recipe.unmet


def step_environment(home: Path, recipe: EnvironmentRecipe) -> StepEnvironment:
    """The environment of a recipe, in the folder ``.allranks``; costs less than a millisecond."""
    name = re.sub(r"[^\w.-]+", "-", recipe.name).strip("-.") or "environment"
    return StepEnvironment(recipe, home.absolute() / "environments" / f"{name}-{_key(recipe)}")


def built_environments(home: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The folders of those that are built, each with what its ``built.json`` says, by name."""
    files = sorted((home.absolute() / "environments").glob(f"*/{BUILT_FILE}"))
    return [(file.parent, stamp) for file in files if (stamp := _stamp(file.parent))]


def build_step_environment(
    environment: StepEnvironment,
    tell: Callable[[str], None] = lambda _: None,
    without: Sequence[str] = (),
    target: str = "TARGET",
) -> None:
    """Build an environment unless it is there; minutes, most of which are downloads.

    Args:
        environment: what to build.
        tell: called with what it is at the start of each phase.
        without: packages that are left out; what was built without others, or with all, is built anew.
        target: what a hint says to build, of an environment without a file of its own.

    Raises:
        UsageError: it has no package that ``without`` names.
        CannotRunHereError: there is no such Python, or a command failed; the message names the line and the log.
    """
    recipe, folder = environment.recipe, environment.folder
    dropped = dropped_lines(recipe, without)
    make_private_folder(folder.parent.parent)
    make_private_folder(folder.parent)
    with awaited_builder(folder, tell):
        if environment.is_built and (not without or set(environment.left_out) == set(dropped)):
            return  # somebody has built it while we waited
        (folder / BUILT_FILE).unlink(missing_ok=True)  # first: a half-removed environment does not count as built
        shutil.rmtree(folder, ignore_errors=True)
        with folder.with_name(f"{folder.name}.log").open("w", encoding="utf-8") as log:
            try:
                _make(environment, dropped, log, tell)
            except CannotRunHereError as error:
                shutil.rmtree(folder, ignore_errors=True)  # gigabytes, perhaps, that nobody sees
                raise _explained(error, recipe, log, target) from None
        stamp = {
            "name": recipe.name,
            "python": environment.version,
            "packages": [line for line in (*recipe.conda, *recipe.pip) if line not in dropped],
            "without": dropped,
            "unmet": [] if _by_conda(recipe, dropped) else [spec for spec in recipe.unmet if spec not in dropped],
        }
        write_text(folder / BUILT_FILE, json.dumps(stamp, indent=1))
    fingerprint.site_packages.cache_clear()  # who looked before it was there saw nothing
    fingerprint.interpreter_digest.cache_clear()


def dropped_lines(recipe: EnvironmentRecipe, without: Sequence[str]) -> list[str]:
    """What packages name of a recipe, also of what only conda has; UsageError if one names nothing."""
    lines = (*recipe.conda, *recipe.pip)
    unmet = recipe.unmet if recipe.document is not None else ()
    dropped = [line for line in lines if any(is_named(package, line) for package in without)]
    dropped += [spec for spec in unmet if spec_name(spec) in without]
    for package in without:
        if not any(is_named(package, line) or package == spec_name(line) for line in dropped):
            names = [*(line_name(line) for line in lines if not line.startswith("-")), *map(spec_name, unmet)]
            hint = f"It has {', '.join(dict.fromkeys(names))}."
            raise UsageError(f"--without {package}: {recipe.name} has no such package.", hint)
    return dropped


def _make(environment: StepEnvironment, dropped: Sequence[str], log: IO[str], tell: Callable[[str], None]) -> None:
    """The virtual environment, the packages that conda would install, then those that pip would."""
    recipe, folder = environment.recipe, environment.folder
    program = _by_conda(recipe, dropped)
    with guarded_commands(folder) as variables:
        first = f"Python {environment.version}{f' and what {Path(program).name} installs' if program else ''}"
        tell(first)
        if program:
            # Not every version has an option for it.
            said_yes = {**variables, "CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true"}
            command = _conda_command(environment, program)
            run_command(command, said_yes, log, f"{recipe.name}: {first}", recipe.folder)
        else:
            _make_bare(environment, variables, log)
        for kind, asked in (("conda", () if program else recipe.conda), ("pip", recipe.pip)):
            lines = [line for line in asked if line not in dropped]
            if not any(not line.startswith("-") or line.startswith("-e") for line in lines):
                continue
            tell(f"packages ({len(lines)}{' of the conda file' if kind == 'conda' else ''})")
            listed = folder / f"{kind}.txt"
            # uv makes no editable checkout of an address.
            written = [line.removeprefix("-e ") if "://" in line else line for line in lines]
            listed.write_text("\n".join(written) + "\n", encoding="utf-8")
            options = ["--prerelease", "allow"] if "--pre" in lines else []
            _install_packages(environment, ["--requirement", str(listed), *options], variables, log, tell)


def _conda_command(environment: StepEnvironment, program: str) -> list[str]:
    """The command that makes an environment with its conda packages.

    The pip part is left to us: conda reads it from where the file lies, and paths in it start from the user's file.
    """
    folder, document = environment.folder, environment.recipe.document or {}
    packages = [item for item in document.get("dependencies") or [] if isinstance(item, str)]
    named = {spec_name(item) for item in packages}
    added = [*([] if "python" in named else [f"python={environment.version}"]), *([] if "pip" in named else ["pip"])]
    file = folder.with_name(f"{folder.name}.yml")
    channels = {"channels": document["channels"]} if "channels" in document else {}
    write_text(file, json.dumps({**channels, "dependencies": [*packages, *added]}))  # JSON is YAML
    verb = ["create", "-y"] if Path(program).name == "micromamba" else ["env", "create"]
    return [program, *verb, "-p", str(folder), "-f", str(file)]


def _make_bare(environment: StepEnvironment, variables: Mapping[str, str], log: IO[str]) -> None:
    """Make an environment with pip alone; uv finds the interpreter, or downloads it."""
    version, name = environment.version, environment.recipe.name
    python = sys.executable if version == _OWN_VERSION else version
    command = uv_command("venv", "--seed", "--clear", "--python", python, environment.folder)
    try:
        run_command(command, variables, log, f"{name}: Python {version}")
    except CannotRunHereError as error:
        if version == _OWN_VERSION:
            raise
        raise CannotRunHereError(
            f"{name} asks for Python {version}, which is not on this machine and cannot be fetched.",
            f"Install Python {version}, or choose an interpreter for the steps: --python STEP=PATH.\n{error.hint}",
        ) from None


def _by_conda(recipe: EnvironmentRecipe, dropped: Sequence[str]) -> str:
    """The program that makes the environment where pip could not give all of it; empty if none is there or needed.

    Nor where packages are left out: conda is given its file as it is.
    """
    if recipe.document is None or not recipe.unmet or dropped:
        return ""
    return next((found for name in ("micromamba", "mamba", "conda") if (found := shutil.which(name))), "")


def _install_packages(
    environment: StepEnvironment,
    asked: Sequence[str],
    variables: Mapping[str, str],
    log: IO[str],
    tell: Callable[[str], None],
) -> None:
    """Install a list; without CUDA where no GPU is, unless PyTorch's index cannot be reached."""
    recipe = environment.recipe
    command = uv_command("pip", "install", "--python", environment.python, *asked)
    backend = ["--torch-backend", "auto" if has_gpu() else "cpu"]
    try:
        run_command([*command, *backend], variables, log, recipe.name, recipe.folder)
    except CannotRunHereError:
        if _TORCH_INDEX not in Path(log.name).read_text(encoding="utf-8", errors="replace"):
            raise
        tell(f"packages, without {_TORCH_INDEX}, which cannot be reached: torch may bring gigabytes of CUDA")
        run_command(command, variables, log, recipe.name, recipe.folder)


def _explained(error: CannotRunHereError, recipe: EnvironmentRecipe, log: IO[str], target: str) -> CannotRunHereError:
    """The error of a build; where lines of the recipe are to blame, with them and how to go on without."""
    text = Path(log.name).read_text(encoding="utf-8", errors="replace").rpartition("\n$ ")[2]
    lines = [line for line in (*recipe.conda, *recipe.pip) if not line.startswith("-") or line.startswith("-e")]
    guilty = [line for line in lines if "://" in line and _address(line) in text]
    if not guilty:
        names = {line_name(name) for pair in _GUILTY.findall(text) for name in pair if name}
        guilty = [line for line in lines if line_name(line) in names]
    if not guilty:
        return _without_conda(error, recipe, target)
    reason = error.message.partition(" failed: ")[2]
    options = " ".join(f"--without {name}" for name in dict.fromkeys(map(line_name, guilty)))
    return CannotRunHereError(
        f"{recipe.name}: {', '.join(guilty)} cannot be installed: {reason}",
        f"To go on without, once: allranks env build {recipe.source or target} {options}\n{error.hint}",
    )


def _without_conda(error: CannotRunHereError, recipe: EnvironmentRecipe, target: str) -> CannotRunHereError:
    """The error; where conda was asked, which may not reach its channels, with how to do without it."""
    if not _by_conda(recipe, ()):
        return error
    options = " ".join(f"--without {spec_name(spec)}" for spec in recipe.unmet)
    build = f"allranks env build {recipe.source or target} {options}"
    return CannotRunHereError(error.message, f"To have what pip can give, once: {build}\n{error.hint}")


def _address(line: str) -> str:
    """The part of a line with an address that a program repeats when it cannot reach it."""
    return re.sub(r"^.*?(git\+)?(?=\w+://)|[@#].*$", "", line)


def _key(recipe: EnvironmentRecipe) -> str:
    constraints = [Path(line.split(" ", 1)[1]) for line in recipe.pip if line.startswith(("-c ", "--constraint "))]
    local = [Path(line) for line in recipe.pip if line.startswith("/") and Path(line).exists()]
    decides = [
        _FORMAT,
        recipe.python or _OWN_VERSION,
        recipe.conda,
        recipe.pip,
        [file.read_text(encoding="utf-8") for file in constraints if file.is_file()],
        [fingerprint.tree_fingerprint(path) for path in local],
        dict(recipe.document or {}) if recipe.unmet else {},
        [sys.platform, platform.machine(), has_gpu()],
    ]
    return fingerprint.json_digest(decides)[:12]


def _stamp(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / BUILT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
