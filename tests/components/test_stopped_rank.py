"""A rank that is stopped, or hangs, in the middle of a training is named, and all tell where they stood, by every trainer."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.components.launched import MPI_TRAINERS, launched, signal_last
from tests.components.test_stop_in_validation import OTHERS, arranged
from tests.components.training import lines
from tests.helpers import RankResult, finish

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STACK = "(most recent call first)"


def ended_by(
    number: signal.Signals, trainer: str, folder: Path, more: Mapping[str, object], before: str = "pass"
) -> tuple[list[RankResult], str]:
    """How the ranks of a training ended in whose midst the last process gets a signal, and all they printed."""
    data, options = arranged(trainer, folder, share=0.001)
    out = folder / "out"
    with launched(trainer, data, out, {**options, "epochs": 10_000, **more}, before=before) as ranks:
        until = time.monotonic() + 300
        while not any("epoch_seconds" in str(line) for line in lines(out)):  # the first validation may take long
            assert time.monotonic() < until, ranks[0].stderr
            time.sleep(0.01)
        signal_last(ranks, number)
        results = finish(ranks)
    return results, "".join(result.stderr + result.stdout for result in results)


@pytest.mark.exhaustive
@pytest.mark.parametrize("trainer", ["train_ddp", *(f"train_{name}" for name in OTHERS if name != "lightning_module")])
def test_a_stopped_rank_is_named_and_the_others_end(trainer: str, tmp_path: Path) -> None:
    results, told = ended_by(signal.SIGSTOP, trainer, tmp_path, {})
    stopped = "ps 0" if trainer == "train_tf_parameter_server" else "rank 1"
    assert f"distributed: {stopped} (node" in told
    assert "stands still: its process was stopped 4 s ago" in told
    count = told.count("where it stood:")
    assert count >= 2, "all ranks tell"
    assert told.count(STACK) >= count
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
    limits = {"step_timeout": 0.5, "checkpoint_minutes": 0, "checkpoint_every": 0 if in_step else 2}
    _, told = ended_by(signal.SIGUSR2, trainer, tmp_path, limits, HANGS.format(what=what, in_step=in_step))
    named = r"rank 1 \(node 0\) makes no progress: nothing has moved for "
    if what == NATIVE:  # at the edge of a pause another wait may end first, or faulthandler's watchdog
        named += r"|rank 1 \(node 0\) has died|timed out waiting for rank 1"
    assert re.search(named, told), told[-3000:]
    assert told.count("where it stood:") >= 1 + (what != NATIVE), "native code is ended by faulthandler's watchdog"
    assert told.count(STACK) >= 2
