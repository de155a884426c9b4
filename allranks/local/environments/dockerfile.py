"""What a Dockerfile installs for Python, as far as it is plain; the rest is named.

The format: https://docs.docker.com/reference/dockerfile/. A stage that is only copied from counts for nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from allranks.errors import Problem, SpecError
from allranks.local.environments.conda import read_conda_file, read_conda_specs
from allranks.local.environments.pip_lines import read_pip_lines

_HARMLESS = frozenset(
    (
        *(":", "cd", "chmod", "chown", "echo", "export", "find", "groupadd", "ldconfig", "ln", "ls", "mkdir", "mv"),
        *("printf", "pwd", "rm", "sed", "set", "source", "touch", "true", "useradd", "which"),
    )
)
_NOT_TAKEN = re.compile(r"PATH|LD_LIBRARY_PATH|CONDA_.*|DEBIAN_FRONTEND|PIP_.*|LANG|LC_ALL|HOME|USER|SHELL")
_PIP_VALUES = frozenset(["-i", "--index-url", "--extra-index-url", "-f", "--find-links"])
_PIP_DROPPED = frozenset(
    ["--timeout", "--default-timeout", "--progress-bar", "--trusted-host", "--retries", "--root-user-action"]
)
_CONDA_VALUES = frozenset(["-c", "--channel", "-n", "--name", "-p", "--prefix", "--solver"])
_LONGEST = 60  # characters of a command that are repeated


@dataclass(slots=True)
class DockerfilePart:
    """What was understood; the fields are those of ``EnvironmentRecipe``, and ``image`` what it is built from."""

    image: str = ""
    python: str = ""
    conda: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def read_dockerfile(context: Path, name: str) -> DockerfilePart:
    """Read the Dockerfile of a build context; SpecError if it, or a file that it installs from, is not there."""
    file = context / name
    try:
        text = file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {error.strerror or error}.", file=file)]) from None
    return _Reading(context).read(text)


def image_python(image: str) -> tuple[str, tuple[str, ...]]:
    """The version of Python and the torch that an image's name says, as ``python:3.10`` and ``…-py310-torch280`` do."""
    version = re.search(r"(?:^|[/_-])py(?:thon)?[-:]?3\.?(\d{1,2})", image)
    torch = re.search(r"torch(\d)(\d+)(\d)(?!\d)", image)
    return f"3.{version[1]}" if version else "", (f"torch=={'.'.join(torch.groups())}",) if torch else ()


class _Reading:
    """One Dockerfile, instruction by instruction."""

    def __init__(self, context: Path) -> None:
        self._context = context
        self._part = DockerfilePart()
        self._copied: dict[str, str] = {}  # by the name that a file has in the image

    def read(self, text: str) -> DockerfilePart:
        for word, rest in _instructions(text):
            if word == "FROM":
                image = next((part for part in rest.split() if not part.startswith("--")), "")
                python, pip = image_python(image)
                self._part = DockerfilePart(image, python, pip=pip)
            elif word in ("COPY", "ADD") and "--from=" not in rest:
                *sources, target = rest.split() or [""]
                for source in sources:
                    self._copied[PurePosixPath(target).name] = self._copied[PurePosixPath(source).name] = source
            elif word == "ENV":
                self._note_variables(rest)
            elif word == "RUN":
                self._run(rest)
        return self._part

    def _note_variables(self, rest: str) -> None:
        """Keep ``NAME=value`` and ``NAME value``, but for paths in the image and what is made of other variables."""
        pairs = [part.partition("=")[::2] for part in _words(rest) if "=" in part] or [rest.partition(" ")[::2]]
        kept = {name: value for name, value in pairs if not (_NOT_TAKEN.fullmatch(name) or re.search(r"\$|^/", value))}
        kept.pop("", None)
        self._part.variables = MappingProxyType({**self._part.variables, **kept})

    def _run(self, rest: str) -> None:
        rest = re.sub(r"^(--\w+=\S+\s+)+", "", rest)
        try:
            commands = (
                [list(map(str, json.loads(rest)))]
                if rest.startswith("[")
                else [_words(one) for one in re.split(r"&&|;|\|\|", rest)]
            )
        except ValueError:
            commands = []
            self._unmet(f"RUN {rest}")
        for words in commands:
            self._command(_without_shell(words))

    def _command(self, words: list[str]) -> None:
        """One command: what installs for Python is taken, what changes nothing for it passed over, the rest named."""
        if not words or "/miniconda/" in words[0] or PurePosixPath(words[0]).name in _HARMLESS:
            return  # Azure's images have the miniconda that makes environments apart from the environment
        program, verb = PurePosixPath(words[0]).name, words[1] if len(words) > 1 else ""
        if re.fullmatch(r"pip[\d.]*", program) and verb == "install":
            self._pip(words[2:])
        elif re.fullmatch(r"conda|mamba|micromamba", program):
            self._conda(words[1:])
        elif program not in ("apt-get", "apt") or verb not in ("update", "clean", "upgrade", "autoremove", "autoclean"):
            self._unmet(" ".join(word for word in words if not word.startswith("-")))

    def _pip(self, words: list[str]) -> None:
        rest, lines = iter(_split_options(words)), []
        for word in rest:
            if word in ("-r", "--requirement", "-e", "--editable"):
                is_list, value = word in ("-r", "--requirement"), next(rest, "")
                found = self._file(value) if is_list else self._context / value
                if found.is_file() if is_list else found.exists():
                    lines.append(f"{'-r' if is_list else '-e'} {found}")
                else:
                    self._unmet(f"pip install {word} {value}")
            elif word in ("-c", "--constraint"):
                lines.append(f"-c {self._file(next(rest, ''))}")
            elif word in _PIP_VALUES:
                lines.append(f"{word} {next(rest, '')}")
            elif word in _PIP_DROPPED:
                next(rest, "")
            elif not word.startswith("-"):
                self._take_requirement(word, lines)
            elif word == "--pre":
                lines.append(word)
        self._part.pip += read_pip_lines(lines, self._context)

    def _take_requirement(self, word: str, lines: list[str]) -> None:
        """A requirement; what the shell would fill in, and paths in the image, cannot be installed here."""
        if "$" in word or word.startswith(".") or ("/" in word and "://" not in word):
            self._unmet(f"pip install {word}")
        elif word not in ("pip", "setuptools", "wheel"):  # upgraded out of habit; every environment has them
            lines.append(word)

    def _conda(self, words: list[str]) -> None:
        verbs = [word for word in words[:2] if not word.startswith("-")]
        rest, specs, file = iter(words[len(verbs) if verbs[:1] == ["env"] else 1 :]), [], ""
        if verbs[:1] not in (["env"], ["create"], ["install"], ["update"]):
            return
        for word in rest:
            if word in ("-f", "--file"):
                file = next(rest, "")
            elif word.startswith(("--file=", "-f=")):
                file = word.partition("=")[2]
            elif word in _CONDA_VALUES:
                value = next(rest, "")
                if word in ("-n", "--name") and value == "base":
                    return
            elif not word.startswith("-"):
                specs.append(word)
        self._add_conda(specs, file)

    def _add_conda(self, specs: list[str], file: str) -> None:
        python, conda, unmet = read_conda_specs(specs)
        if file and self._file(file).is_file():
            part = read_conda_file(self._file(file))
            python, conda, unmet = python or part.python, (*conda, *part.conda), (*unmet, *part.unmet)
            self._part.pip += part.pip
        elif file:
            unmet = (*unmet, f"conda env of {file}")
        self._part.python = python or self._part.python
        self._part.conda += tuple(spec for spec in conda if spec not in self._part.conda)
        self._part.unmet += unmet

    def _file(self, name: str) -> Path:
        """The file of the context that has this name in the image."""
        last = PurePosixPath(name).name
        return self._context / self._copied.get(last, last).lstrip("/")

    def _unmet(self, text: str) -> None:
        text = " ".join(text.split())
        self._part.unmet += (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...",)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Instructions with what follows them; lines that go on are joined, comments between them left out."""
    kept = "\n".join(line.rstrip() for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", " ", kept).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


def _split_options(words: list[str]) -> list[str]:
    """``--requirement=x`` and ``-rx`` as two words."""
    found: list[str] = []
    for word in words:
        match = re.fullmatch(r"(--[a-z-]+)=(.*)|(-[recfi])(?=[^-\s])(.+)", word)
        found += [part for part in match.groups() if part] if match else [word]
    return found


def _words(text: str) -> list[str]:
    return shlex.split(text, comments=True)


def _without_shell(words: list[str]) -> list[str]:
    """A command without what only says in which environment or as whom: ``conda run -n x``, ``python -m``, ``sudo``."""
    while words:
        if words[0] in ("sudo", "exec", "time", "uv") or re.match(r"\w+=", words[0]):
            words = words[1:]
        elif PurePosixPath(words[0]).name in ("conda", "mamba", "micromamba") and words[1:2] == ["run"]:
            if "base" in words[2:4]:
                return []
            at = 2
            while at < len(words) and words[at].startswith("-"):
                at += 2 if words[at] in ("-n", "-p", "--name", "--prefix") else 1
            words = words[at:]
        elif re.fullmatch(r"python[\d.]*", PurePosixPath(words[0]).name) and words[1:3] == ["-m", "pip"]:
            words = words[2:]
        else:
            break
    return words
