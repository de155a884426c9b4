"""Make the SDK cheaper for tests: one import for all processes, and YAML by libyaml, which gives the same documents."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import NoReturn

import pytest
import yaml

from allranks.azure import python_target, reader
from allranks.child_process import child_command


@pytest.fixture(autouse=True, scope="module")
def libyaml() -> Iterator[None]:
    """Let `yaml.safe_load` use libyaml: the SDK spent more than half of its time in the parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "SafeLoader", yaml.CSafeLoader)
        yield


def forked(call: Callable[[], int | None], text: str = "") -> subprocess.CompletedProcess[str]:
    """Fork a process from pytest, which has imported the SDK, for one call; the text is its standard input."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _end_with(call, text)
        status = os.waitpid(pid, 0)[1]
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([], os.waitstatus_to_exitcode(status), out.read(), err.read())


def _end_with(call: Callable[[], int | None], text: str) -> NoReturn:
    """Make the call in the forked process, and end the process: a second pytest must not go on."""
    code = 1
    try:
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(text), os.fdopen(1, "w"), os.fdopen(2, "w")
        code = call() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


OPTIONS = len(child_command(""))
"""The words of a child's command line that are in front of its arguments."""


def run(command: Sequence[str], *, input: str, **_options: bool) -> subprocess.CompletedProcess[str]:  # noqa: A002
    """Fork a reader of a Python pipeline, with the arguments of `subprocess.run`."""
    return forked(lambda: reader.main(list(command[OPTIONS:])), input)


@pytest.fixture
def started_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the readers of this test as new interpreters, as users do."""
    monkeypatch.setattr(python_target, "subprocess", subprocess)


@pytest.fixture(autouse=True)
def forked_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork every reader, unless a test asks for `started_reader`."""
    monkeypatch.setattr(python_target, "subprocess", SimpleNamespace(run=run))
