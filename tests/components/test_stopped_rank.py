"""A rank that is stopped, or hangs, in the middle of a training is named, and all tell where they stood, by every trainer."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.components.launched import MPI_TRAINERS, launched, signal_last
from tests.components.test_stop_in_validation import OTHERS, arranged
from tests.components.training import lines
from tests.helpers import RankResult, finish
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STACK = "(most recent call first)"


def ended_by(
    number: signal.Signals, trainer: str, folder: Path, more: Mapping[str, object], before: str = "pass"
) -> tuple[list[RankResult], str]:
    """How the ranks of a training ended in whose midst the last process gets a signal, and all they printed."""
    data, options = arranged(trainer, folder, share=0.001)
    out = folder / "out"
    timeout = {"init_timeout": 2} if trainer == "train_tf_parameter_server" else {"step_timeout": 0.5}
    limits = {**timeout, "checkpoint_minutes": 0, "epochs": 10_000}
    with launched(trainer, data, out, {**options, **limits, **more}, before=before) as ranks:
        processes = [rank.process for rank in ranks]
        # The first validation may take long.
        wait_for(lambda: any("epoch_seconds" in str(line) for line in lines(out)), running=processes)
        pid = signal_last(ranks, number)
        for process in processes:
            if process.pid != pid:
                process.wait()
        with suppress(ProcessLookupError):  # a launcher ends a process that is stopped
            os.kill(pid, signal.SIGKILL if number == signal.SIGSTOP else 0)
        results = finish(ranks)
    return results, "".join(result.stderr + result.stdout for result in results)


@pytest.mark.exhaustive
@pytest.mark.parametrize("trainer", ["train_ddp", *(f"train_{name}" for name in OTHERS if name != "lightning_module")])
def test_a_stopped_rank_is_named_and_the_others_end(trainer: str, tmp_path: Path) -> None:
    results, told = ended_by(signal.SIGSTOP, trainer, tmp_path, {})
    stopped = "ps 0" if trainer == "train_tf_parameter_server" else "rank 1"
    # Processes that serve a coordinator count no steps, and are named when time is up.
    assert f"distributed: {stopped} (node 0): its heartbeat has been missing for " in told or stopped == "ps 0"
    assert re.search(rf"distributed: {stopped} \(node \d+\) makes no progress: nothing has moved for ", told), told
    assert told.count("where it stood:") >= 1
    assert told.count(STACK) >= 1
    assert any(result.returncode for result in results) or trainer in MPI_TRAINERS


# What the handler does happens in the main thread, as soon as that has come out of native code. In a step a rank may be
# silent for half of step_timeout; where silence was announced, such as in a save, for as long as the others wait.
NATIVE = "range(10**14)"
HANGS = """import signal, sys
        def hang(*_):
            if bool(sys.modules["shared.distributed.liveness"]._progress.limit) is {in_step}:
                sum({what})
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.signal(signal.SIGUSR2, hang)
        signal.signal(signal.SIGALRM, hang)"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("what", "in_step"),
    [("1 for _ in iter(int, 1)", True), (NATIVE, True), (NATIVE, False)],
    ids=["python", "native", "native in a pause"],
)
@pytest.mark.parametrize("trainer", ["train_ddp", *(f"train_{name}" for name in OTHERS if name != "lightning_module")])
def test_a_rank_that_hangs_is_named_and_the_others_end(trainer: str, what: str, in_step: bool, tmp_path: Path) -> None:
    if trainer == "train_tf_parameter_server":
        pytest.skip("its servers compute in threads of TensorFlow's own, which no signal of Python's reaches")
    limits = {"checkpoint_every": 0 if in_step else 2}
    _, told = ended_by(signal.SIGUSR2, trainer, tmp_path, limits, HANGS.format(what=what, in_step=in_step))
    named = r"rank 1 \(node 0\) makes no progress: nothing has moved for "
    if what == NATIVE:  # at the edge of a pause another wait may end first, or faulthandler's watchdog
        named += r"|rank 1 \(node 0\) has died|timed out waiting for rank 1"
    assert re.search(named, told), told[-3000:]
    assert told.count("where it stood:") >= 1 + (what != NATIVE), "native code is ended by faulthandler's watchdog"
    assert told.count(STACK) >= 2
