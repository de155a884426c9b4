"""TMPDIR of the steps: short in every project, private, removed with the attempt and after a kill -9 of the engine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.local.temporary import TemporaryRoot
from tests.components.training import write_digits
from tests.helpers import ROOT
from tests.local.support import carrying, command, environ, run_json
from tests.waiting import wait_for

EACH_START_METHOD = """
import multiprocessing

def double(value):
    return 2 * value

if __name__ == "__main__":
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(double, [1, 2]), flush=True)
    with multiprocessing.Manager() as manager:
        print("manager", list(manager.list([1, 2])), flush=True)
    import torch  # here: the processes above import this file
    from torch.utils.data import DataLoader, TensorDataset
    loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2, num_workers=2)
    print("loader", [batch[0].tolist() for batch in loader])
"""


@pytest.fixture
def long_folder(tmp_path: Path) -> Path:
    """A project folder whose path has at least 150 characters."""
    folder = tmp_path / ("p" * 80) / ("q" * max(1, 150 - len(str(tmp_path)) - 82))
    folder.mkdir(parents=True)
    assert len(str(folder)) >= 150
    return folder


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short folder that stands for /tmp, so that engines of other tests are not seen."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_every_start_method_works_in_a_long_folder(long_folder: Path) -> None:
    (long_folder / "methods.py").write_text(EACH_START_METHOD)
    result = run_json("methods.py", cwd=long_folder)
    assert result["exit"] == 0, result
    said = (Path(result["steps"]["methods"]["folder"]) / "user_logs/std_log.txt").read_text()
    assert said.splitlines() == [
        *(f"{method} [2, 4]" for method in ("fork", "spawn", "forkserver")),
        "manager [1, 2]",
        "loader [[0, 1], [2, 3]]",
    ]


TRAINERS = ("ddp", "torchrun", "deepspeed", "lightning", "horovod", "horovod_keras")
TASKS = ("tf_multiworker", "tf_parameter_server")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("trainer", [*TRAINERS, *TASKS])
def test_every_trainer_has_two_loader_workers_in_a_long_folder(trainer: str, long_folder: Path, tmp_path: Path) -> None:
    """Pictures that are decoded and moved while training need processes of their own."""
    data = write_digits(tmp_path / "digits", rows=200, encoded=True)
    result = run_json(
        ROOT / "components" / f"train_{trainer}" / "component.yaml",
        *(f"data={data}", "epochs=1", "batch_size=16", "loader_workers=2", "prefetch=2", "crop_padding=1"),
        *("--scale", "2x1" if trainer in TASKS else "1x2"),
        cwd=long_folder,
    )
    assert result["exit"] == 0, result["steps"]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "length"), [("language_model", "train.max_steps=3"), ("finetune_text", "epochs=1")])
def test_trainers_of_texts_have_two_loader_workers_in_a_long_folder(name: str, length: str, long_folder: Path) -> None:
    result = run_json(name, length, "train.loader_workers=2", cwd=long_folder)
    assert result["exit"] == 0, result["steps"]["train"]["failure"]


KEEPS = """
import os, signal, sys
from pathlib import Path
tmp = Path(os.environ["TMPDIR"])
(tmp / "file").write_text("x")
Path(os.environ["SEEN"]).open("a").write(f"{tmp} {oct(tmp.parents[1].stat().st_mode)}\\n")
"""


def test_it_is_private_and_removed_with_the_attempt(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "keeps.py").write_text(KEEPS + "sys.exit(1)\n")
    result = run_json("keeps.py", "--retries", "1", cwd=tmp_path, TMPDIR=str(scratch), SEEN=str(tmp_path / "seen"))
    assert result["exit"] == 1
    first, second = (line.split() for line in (tmp_path / "seen").read_text().splitlines())
    assert first[0] != second[0], "each attempt has its own"
    assert first[1] == second[1] == "0o40700"
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("with_guard", [False, True], ids=["engine", "engine and guard"])
def test_it_is_removed_after_kill_9(with_guard: bool, tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "keeps.py").write_text(KEEPS + "signal.pause()\n")
    variables = environ(TMPDIR=str(scratch), SEEN=str(tmp_path / "seen"))
    engine = subprocess.Popen(command("run", "keeps.py"), cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text(), [engine])
    own = carrying(f"TMPDIR={scratch}")
    assert engine.pid in own
    (folder,) = scratch.iterdir()
    if with_guard:  # the guard first, stopped beforehand so that the engine starts no new one
        os.kill(engine.pid, signal.SIGSTOP)
    for pid in sorted(own if with_guard else [engine.pid], key=lambda pid: pid == engine.pid):
        os.kill(pid, signal.SIGKILL)
    engine.wait()
    if with_guard:
        assert folder.exists()
        (tmp_path / "again.py").write_text("print('again')\n")
        assert run_json("again.py", cwd=tmp_path, TMPDIR=str(scratch))["exit"] == 0
    wait_for(lambda: not list(scratch.iterdir()))


def test_only_folders_of_engines_that_are_gone_are_removed(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    running, abandoned, own = TemporaryRoot(), scratch / "allranks-tmp-abandone", scratch / "allranks-tmp-mine1234"
    kept = running.new_attempt(2)
    for folder in (abandoned, own, scratch / "allranks-tmp-of-a-user", scratch / "victim"):
        folder.mkdir()
    for folder in (abandoned, scratch / "allranks-tmp-of-a-user", scratch / "victim"):
        (folder / "lock").touch()
    (scratch / "allranks-tmp-linked12").symlink_to(scratch / "victim")
    other = TemporaryRoot()
    other.open()
    assert not abandoned.exists(), "its lock is free"
    assert sorted(child.name for child in kept.iterdir()) == ["0", "1"], "an engine has its lock"
    assert own.exists(), "it has no lock"
    assert (scratch / "allranks-tmp-of-a-user").exists(), "no engine gives such a name"
    assert (scratch / "victim/lock").exists()
    other.close()
    running.close()
    assert not kept.exists()


def test_a_long_tmpdir_of_the_user_is_not_taken(
    long_folder: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(long_folder))
    root = TemporaryRoot()
    attempt = root.new_attempt(1)
    assert len(str(attempt / "0")) < 107 - 32
    root.close()
