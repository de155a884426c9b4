"""Call the command line in pytest's own process: to start an interpreter costs more than most commands do."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from allranks.cli.main import main


def allranks(*arguments: str | Path, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, as `tests.local.support.allranks` does in a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    command = [str(argument) for argument in arguments]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        for name, value in extra.items():
            patch.setenv(name, value)
        code = main(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
