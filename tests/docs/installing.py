"""Environments as the pages prescribe them, in a clean copy of the tree: what the developer's environment has is not there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import COMMANDS, ROOT, Command
from tests.helpers import clean_environment

_NOT_TAKEN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Installation:
    """An environment of its own, and where its commands are typed."""

    venv: Path
    cwd: Path

    def call(self, text: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """What a person types, without a shell."""
        environ = self._environ(variables)
        program, *arguments = shlex.split(text)
        return subprocess.run(
            [shutil.which(program, path=environ["PATH"]) or program, *arguments],
            cwd=cwd or self.cwd,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def call_forked(
        self, texts: Iterable[str], modules: Iterable[str], cwd: Path, **variables: str
    ) -> list[subprocess.CompletedProcess[str]]:
        """The same for many lines of ``allranks``, one after another, which share the import of some modules."""
        lines = [shlex.split(text) for text in texts]
        done = subprocess.run(
            [self.venv / "bin/python", Path(__file__).with_name("forked.py"), *modules],
            cwd=cwd,
            env=self._environ(variables),
            input="".join(f"{json.dumps(line)}\n" for line in lines),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answers = map(json.loads, done.stdout.splitlines())
        return [
            subprocess.CompletedProcess(line, answer["code"], answer["out"], answer["err"])
            for line, answer in zip(lines, answers, strict=True)
        ]

    def _environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in clean_environment().items() if name not in _NOT_TAKEN}
        return {**kept, "PATH": f"{self.venv / 'bin'}:{os.environ['PATH']}", **variables}

    def must(self, text: str, cwd: Path | None = None, **variables: str) -> str:
        """What a command prints that has to succeed."""
        done = self.call(text, cwd, **variables)
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


def clean_copy(folder: Path) -> Path:
    """The tree without what git ignores, in a folder ``allranks``; the one that .ci/run has made, if it has."""
    if "CLEAN_COPY" in os.environ:
        return Path(os.environ["CLEAN_COPY"])
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    return shutil.copytree(ROOT, folder / "allranks", ignore=shutil.ignore_patterns(".git", *ignored))


def installed(copy: Path, extras: str, like: Installation | None = None) -> Installation:
    """Install by the lines of the first page that prescribes these extras, above or beside the copy as the page is.

    Args:
        copy: the tree.
        extras: sorted and joined by commas.
        like: an environment that has a part of it, which is hard-linked in place of being made again.
    """
    if extras == "local" and (copy / ".venv" / ".stamp-local").is_file():
        return Installation(copy / ".venv", copy)  # the README: "`make run`, then `. .venv/bin/activate`" does the same
    lines = lines_of(extras)
    beside = any("../allranks" in line.text for line in lines)
    cwd = copy.parent / f"beside-{extras}" if beside else copy
    cwd.mkdir(exist_ok=True)
    installation = Installation(new_environment(copy.parent / f"venv-{extras}", like), cwd)
    for line in lines:
        fast = "python -m pip install --quiet --no-compile"  # most of what is installed nobody imports here
        installation.must(line.text.replace("pip install", fast, 1))
    return installation


def lines_of(extras: str) -> list[Command]:
    """The lines with which the first page that prescribes these extras installs them."""
    lines = [command for command in COMMANDS if command.how == "install" and command.extras == extras]
    assert lines, f"no page says how to install [{extras}]"
    return [line for line in lines if line.page == lines[0].page]


def new_environment(folder: Path, like: Installation | None) -> Path:
    """An empty environment, or one with the packages of another."""
    subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(folder)], check=True)
    if like is not None:
        (packages,) = folder.glob("lib/python3*/site-packages")
        shutil.rmtree(packages)
        (others,) = like.venv.glob("lib/python3*/site-packages")
        shutil.copytree(others, packages, copy_function=os.link)
    return folder


def installed_wheel(copy: Path, folder: Path, like: Installation) -> Installation:
    """The wheel in place of the editable installation, to be used in an empty folder."""
    dist = copy.parent / "dist"
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(copy)],
        check=True,
        capture_output=True,
    )
    (wheel,) = dist.glob("*.whl")
    folder.mkdir()
    installation = Installation(new_environment(copy.parent / "venv-wheel", like), folder)
    installation.must(f"python -m pip install --quiet --no-deps --force-reinstall {wheel}")
    return installation
