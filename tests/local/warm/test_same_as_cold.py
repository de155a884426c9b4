"""A rank that was forked finds what a new interpreter finds, and ends as it does."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from tests.local.support import pipeline, step
from tests.local.warm.support import Warmth, log_of

# numpy in place of torch: its import takes a tenth of the time.
LOOK = """
import gc, json, multiprocessing.process, os, random, resource, signal, sys, tempfile
import numpy
import helper

def look() -> dict:
    environ = dict(pair.split("=", 1) for pair in open("/proc/self/environ").read().split("\\0") if "=" in pair)
    return {
        "variables": dict(os.environ),
        "shown": {name: environ.get(name) for name in os.environ},
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags),
        "executable": sys.executable, "prefix": sys.prefix, "helper": helper.__file__,
        "main": {name: str(value) for name, value in globals().items() if name.startswith("__")},
        "modules": sys.modules["__main__"].__dict__ is globals(),
        "cwd": os.getcwd(), "temporary": tempfile.gettempdir(), "umask": os.umask(0o22),
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "descriptors": sorted(os.listdir("/proc/self/fd"))[:4],
        "targets": [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)],
        "buffering": [sys.stdout.line_buffering, sys.stdout.encoding, sys.stderr.line_buffering],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
        "cores": sorted(os.sched_getaffinity(0)), "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "rights": [line for line in open("/proc/self/status") if line.startswith(("Cap", "Uid", "Gid", "Groups", "NoNew"))],
        "owner": os.stat("/proc/self/environ").st_uid,
        "threads": len(os.listdir("/proc/self/task")),
        "annotations": str(look.__annotations__), "names": sorted(globals()),
        "command": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
        "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))), "policy": os.sched_getscheduler(0),
        "began": multiprocessing.process.ORIGINAL_DIR,
    }

if __name__ == "__main__":
    print(json.dumps(look()))
    print(json.dumps([random.random(), numpy.random.random()]))
"""


def without_run(text: str, result: dict[str, Any]) -> Any:
    """What a rank told, with what differs from run to run blotted out."""
    text = text.replace(result["run_id"], "RUN").replace(result["run_dir"], "FOLDER")
    return json.loads(re.sub(r"0x[0-9a-f]+|127\.0\.0\.1:\d+", "AT", text))


def look_twice(warmth: Warmth, folder: Path, *arguments: str) -> list[list[Any]]:
    """What both ranks of a script told, started as ever and forked."""
    told = []
    results = [warmth.warm_up(*arguments, cwd=folder)]
    early = warmth.forked()  # on a busy machine the second rank may come when all is ready
    results.append(warmth.run(*arguments, cwd=folder))
    assert warmth.forked() - early == 2, warmth.state()
    for result in results:
        lines = [log_of(result, rank).splitlines() for rank in (0, 1)]
        told.append([(without_run(state, result), json.loads(drawn)) for state, drawn in lines])
    return told


@pytest.mark.parametrize("arguments", [["look.py"], ["-m", "look"]], ids=["script", "module"])
def test_a_forked_rank_finds_what_a_new_interpreter_finds(
    warmth: Warmth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("WITH SPACES", "a 'b' \"c\" ü\n$d")
    monkeypatch.setenv("PS1", "(.venv) $ ")  # as an environment exports it that was activated
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "helper.py").write_text("")
    more = ["--scale", "1x2", "--distribution", "pytorch", "--", "--words", "two words", "--path", "a/b=c,d"]
    cold, warm = look_twice(warmth, tmp_path, *arguments, *more)
    for rank in (0, 1):
        before, after = dict(cold[rank][0]), dict(warm[rank][0])
        for one in (before, after):
            for name in ("MASTER_PORT", "MLFLOW_TRACKING_TOKEN"):  # of each run its own
                del one["variables"][name], one["shown"][name]
        assert after == before
    drawn = [tuple(state[1]) for state in (*cold, *warm)]
    assert len(set(drawn)) == 4, "each process has random numbers of its own"


SESSION = """
import os
import mlflow
from mlflow.telemetry.client import get_telemetry_client

print(os.environ["_MLFLOW_TELEMETRY_SESSION_ID"], get_telemetry_client().info["session_id"])
"""


def test_a_forked_rank_has_a_session_of_mlflow_of_its_own(
    warmth: Warmth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_MLFLOW_TELEMETRY_SESSION_ID", raising=False)  # pytest's own, where a test has imported it
    (tmp_path / "session.py").write_text(SESSION)
    arguments = ("session.py", "--scale", "1x2", "--distribution", "pytorch")
    even_here = {"_MLFLOW_TESTING_TELEMETRY": "true"}  # which MLflow leaves out where it sees CI, or pytest
    cold = warmth.warm_up(*arguments, cwd=tmp_path, **even_here)
    warm = warmth.run(*arguments, cwd=tmp_path, **even_here)
    assert warmth.forked() == 2, warmth.state()
    told = [log_of(result, rank).split() for result in (cold, warm) for rank in (0, 1)]
    assert all(shown == held for shown, held in told)
    assert len({shown for shown, _ in told}) == 4


ENDS = {
    "exit code": "raise SystemExit(3)",
    "exit text": "raise SystemExit('that is wrong')",
    "error": "def f():\n    return 1 / 0\n\nf()",
    "chained": "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('b') from error",
    "hook": "import sys\nsys.excepthook = lambda *found: print('hook', found[0].__name__, found[1])\n1 / 0",
    "failing hook": "import sys\ndef hook(*found):\n    return 1 / 0\nsys.excepthook = hook\n{}['a']",
    "inner syntax": "import broken",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "at exit": "import atexit, threading, time\natexit.register(print, 'last')\n"
    "threading.Thread(target=lambda: (time.sleep(.2), print('thread'))).start()\nprint('first')",
    "not flushed": "import ctypes\nctypes.CDLL(None).printf(b'of C')\nheld = open('/dev/stdout', 'w')\nheld.write('held')",
    "a library": "import ctypes.util\nctypes.CDLL(ctypes.util.find_library('m'))\nraise SystemExit(4)",
    "left open": "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(600)",
}


@pytest.mark.slow
def test_a_forked_rank_ends_as_a_new_interpreter_does(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    pass")
    script = tmp_path / "ends.py"
    script.write_text("import numpy\n")
    warmth.warm_up("ends.py", cwd=tmp_path)
    for at, (name, text) in enumerate(ENDS.items()):
        script.write_text(f"import numpy\n{text}\n")
        warm = warmth.run("ends.py", "--retries", "0", cwd=tmp_path)
        assert warmth.forked() == at + 1, (name, warmth.state(), warm)
        cold = warmth.run("ends.py", "--retries", "0", cwd=tmp_path, BASH_ENV="/dev/null")
        assert warmth.forked() == at + 1, name
        assert warm["exit"] == cold["exit"], name
        assert log_of(warm).replace(warm["run_id"], "") == log_of(cold).replace(cold["run_id"], ""), name
        failures = [one["steps"]["ends"].get("failure") or {} for one in (warm, cold)]
        assert [one.get("message") for one in failures[:1]] == [one.get("message") for one in failures[1:]], name


LEFT_COLD = {
    "a folder": ({"pkg/__main__.py": "import numpy"}, "python pkg", {}),
    "a path": ({"go.py": "import numpy", "src/mine.py": ""}, "python go.py", {"PYTHONPATH": "src"}),
    "a start": ({"go.py": "import numpy"}, "python go.py", {"PYTHONPATH": "SITE"}),
    "a variable": (
        {"go.py": "import os\nE = os.environ\nE['SKLEARN_ASSUME_FINITE'] = '1'\nimport sklearn"},
        "python go.py",
        {},
    ),
    "settings": ({"go.py": "import matplotlib", "matplotlibrc": "lines.linewidth: 9"}, "python go.py", {}),
}


@pytest.mark.slow
def test_what_a_forked_rank_might_find_otherwise_is_started_as_ever(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import os\nFROM_RANK = os.environ.get('RANK')\n")
    for name, (files, command, variables) in LEFT_COLD.items():
        code = tmp_path / name.replace(" ", "_")
        for path, text in files.items():
            (code / path).parent.mkdir(parents=True, exist_ok=True)
            (code / path).write_text(f"{text}\n")
        given = {key: value.replace("SITE", str(tmp_path / "site")) for key, value in variables.items()}
        target = pipeline(
            code, f"type: pipeline\njobs: {{train: {step(command, more=f'code: ., environment_variables: {given}')}}}\n"
        )
        for _ in range(3):
            assert warmth.run(target, cwd=tmp_path)["exit"] == 0, name
            time.sleep(0.7)
    assert warmth.forked() == 0, warmth.state()


def test_other_cores_or_a_higher_limit_than_the_keeper_has_are_no_failure(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text("import os, numpy\nprint(len(os.sched_getaffinity(0)))\n")
    warmth.warm_up("go.py", cwd=tmp_path)
    every = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(every)})
        one = warmth.run("go.py", cwd=tmp_path)
    finally:
        os.sched_setaffinity(0, every)
    assert (log_of(one), warmth.forked()) == ("1\n", 0 if len(every) > 1 else 1)
    for template in warmth.state()["templates"]:  # as if it had been started under a lower one
        resource.prlimit(template["pid"], resource.RLIMIT_NOFILE, (512, 512))
    assert warmth.run("go.py", cwd=tmp_path)["exit"] == 0
    assert warmth.forked() == (0 if len(every) > 1 else 1)
