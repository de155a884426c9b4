"""What a step installs is the step's, as in its container on Azure ML, and never changes the interpreter that runs it.

A node of a step that seems to install something gets a virtual environment over the interpreter: it sees all that is
installed there, what pip writes goes into it, and it is removed with the end of the step. Other steps keep the
interpreter as it is, for a few packages look for files below ``sys.prefix``; should one of them start pip all the same,
in a way that nobody could see beforehand, PIP_PYTHON sends what it writes into a folder of the run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from allranks.local.snapshot import SnapshotFile

_TOOLS = r"pip[\d.]*|uv|conda|mamba|micromamba|poetry|pdm|mim|spacy|easy_install|setup\.py"
_VERBS = r"install|uninstall|sync|add|update|upgrade|remove|download|develop"
# On one line of a shell, or in a list of arguments: ["-m", "pip", "install", ...]
INSTALL_PATTERN = re.compile(rf"(?<![\w-])(?:{_TOOLS})\b.{{0,80}}?\b(?:{_VERBS})\b", re.DOTALL)
# In Python the words alone are mostly an error's advice; what starts a process has to stand in the same file.
_STARTS = (
    *("subprocess", "os.system", "os.popen", "os.exec", "os.spawn"),
    *("pip.main", "pip._internal", "!pip", "%pip", "!uv"),
)
_PYTHON = frozenset([".ipynb", ".py"])
_SCRIPTS = frozenset(["", ".bash", ".sh"]) | _PYTHON  # suffixes of what a command may start
_MOST = 1_000_000  # bytes of a script that is looked through

_MOST_OF_A_COMMAND = 100_000  # bytes; what pip writes for a command has a few hundred

# How pip starts a command whose interpreter has a path that is too long for the kernel; Python reads it as two strings.
_TRAMPOLINE = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
"""
# pip where the interpreter has none, as in what uv makes.
_PIP = """#!/bin/sh
"{python}" -m pip --version > /dev/null 2>&1 || "{python}" -m ensurepip > /dev/null || exit 1
exec "{python}" -m pip "$@"
"""
# conda cannot install into a virtual environment: it would change an environment that is not the step's.
_CONDA = """#!/bin/sh
case "$1" in
install|update|upgrade|remove|uninstall)
    echo "$(basename "$0") $1 is not emulated: it would change an environment outside the step. Use pip, or make the" \\
        "environment beforehand and choose it: allranks run --python STEP=PATH" >&2
    exit 1
esac
exec "{tool}" "$@"
"""
# uv would look for the system's interpreter and find the one below the overlay, or another one.
_UV = """#!/bin/sh
case " $* $UV_SYSTEM_PYTHON" in
*" --system "*|*" 1"|*" true") export UV_PYTHON="{python}"
esac
exec "{tool}" "$@"
"""


def seems_to_install(command: str, files: Iterable[SnapshotFile]) -> bool:
    """Whether a command, or a script in its snapshot, seems to install, upgrade or remove packages."""
    return INSTALL_PATTERN.search(command) is not None or any(map(_script_installs, files))


def _script_installs(file: SnapshotFile) -> bool:
    if file.members is not None or file.source.suffix not in _SCRIPTS:
        return False
    status = file.source.stat()
    return status.st_size <= _MOST and _text_installs(file.source, status.st_mtime_ns)


@lru_cache(maxsize=4096)  # components share most of their files
def _text_installs(path: Path, _changed: int) -> bool:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in _PYTHON and not any(word in text for word in _STARTS):
        return False
    return INSTALL_PATTERN.search(text) is not None


def make_overlay(folder: Path, python: Path) -> None:
    """Make a virtual environment over an interpreter, which may be one of a virtual environment itself.

    Raises:
        OSError: the interpreter is a script that starts another one, or the folder cannot be written.
    """
    if is_script(python):
        raise OSError(f"{python} is a script; a step that installs packages needs the path of the interpreter itself")
    (folder / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(python.absolute())
    below = _settings(python.parent.parent / "pyvenv.cfg")
    home = below.get("home", str(python.resolve().parent))
    system = below.get("include-system-site-packages", "false") if below else "true"
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = {system}\n")
    for packages in python.parent.parent.glob("lib*/python3*/site-packages") if below else ():
        own = folder / packages.relative_to(python.parent.parent)
        own.mkdir(parents=True)
        (own / "_below.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")


def is_script(python: Path) -> bool:
    """Whether an interpreter is a script that starts another one."""
    with python.open("rb") as file:
        return file.read(2) == b"#!"


def _settings(file: Path) -> dict[str, str]:
    """The lines ``name = value`` of a pyvenv.cfg; empty if there is none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def add_commands(folder: Path, python: Path, path: str) -> None:
    """Let pip, torchrun and their like start with the overlay's interpreter rather than with the one below it.

    Where conda and uv are on ``path``, the PATH, they get something in front.
    """
    old, new = f"{python.parent.absolute()}/python", folder.absolute() / "bin" / "python"
    for script in python.parent.iterdir():
        if script.is_file() and script.stat().st_size <= _MOST_OF_A_COMMAND:
            text = script.read_text(encoding="utf-8", errors="ignore")
            first, second, *rest = [*text.split("\n", 2), "", ""]
            if first.startswith(f"#!{old}"):
                _write_command(folder / "bin" / script.name, _TRAMPOLINE.format(python=new) + text[len(first) + 1 :])
            elif first == "#!/bin/sh" and old in second:  # the path was too long for the first line
                _write_command(
                    folder / "bin" / script.name, _TRAMPOLINE.format(python=new) + rest[0].partition("\n")[2]
                )
    if not (folder / "bin" / "pip").exists():
        _write_command(folder / "bin" / "pip", _PIP.format(python=new))
    for tool, text in (("conda", _CONDA), ("mamba", _CONDA), ("uv", _UV)):
        found = shutil.which(tool, path=f"{python.parent}:{path}")
        if found is not None:
            _write_command(folder / "bin" / tool, text.format(tool=found, python=new))


def _write_command(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def overlay_variables(folder: Path, path: str, *, installs: bool) -> Mapping[str, str]:
    """What sends the packages of a node into an overlay: its own if it ``installs``, else that of the whole run."""
    if not installs:
        return {"PIP_PYTHON": str(folder / "bin" / "python")}
    return {"PATH": f"{folder / 'bin'}:{path}", "VIRTUAL_ENV": str(folder), "PIP_USER": "0"}
