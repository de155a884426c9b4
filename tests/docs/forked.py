"""Runs command lines of ``allranks`` one after another, each in a fork of a process that has imported what takes long.

Started by the interpreter of an installation, with the modules to import as arguments; each line of the input is a list
of arguments in JSON, and the answer a line with the exit code and what was printed. What is called is what the installed
console script calls.
"""

import importlib
import json
import os
import sys
import tempfile
import threading
from importlib.metadata import entry_points


def call(arguments: list[str]) -> None:
    """Take the place of a process that was started with these arguments."""
    (script,) = entry_points(group="console_scripts", name=arguments[0])
    sys.argv = arguments
    try:
        sys.exit(script.load()())
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 as the interpreter does at its end
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def answer(arguments: list[str]) -> dict[str, object]:
    """What became of one command line."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            call(arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return {"code": code, "out": out.read().decode(), "err": err.read().decode()}


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork would lack the other threads"
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
