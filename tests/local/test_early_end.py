"""Ctrl-C once lets those ranks save that can, and ends all others; twice it ends everything."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.forks import ForkedCommand
from tests.local.support import allranks, carrying, pipeline, start_allranks, step
from tests.waiting import wait_for

SAVES = """
cd {folder}
rank=${{RANK:-$OMPI_COMM_WORLD_RANK}}
[ -e "$1/1" ] && echo "going on from $(ls "$1" | tr '\\n' ' ')" && exit
echo $$ > pid_$rank.new && mv pid_$rank.new pid_$rank
trap 'touch saving_$rank; {save}; touch "$1/$rank"; exit 143' TERM
touch ready_$rank
while :; do sleep 0.05; done
"""
# Rank 1 saves when rank 0 has ended.
ONE_BY_ONE = "while [ $rank = 1 ] && kill -0 $(cat pid_0) 2> /dev/null; do sleep 0.05; done"


def start(folder: Path, save: str, kind: str = "pytorch", ranks: int = 2, more: str = "") -> ForkedCommand:
    """A run of ranks that save by this command when they are asked to end, once all wait for that."""
    (folder / "save.sh").write_text(SAVES.format(folder=folder, save=save))
    train = step(
        f"bash {folder}/save.sh ${{{{outputs.out}}}}",
        outputs="out: {type: uri_folder, mode: rw_mount}",
        more=f"distribution: {{type: {kind}, process_count_per_instance: {ranks}}}",
    )
    file = pipeline(folder, f"type: pipeline\njobs: {{train: {train}{more}}}\n")
    engine = start_allranks("run", file, cwd=folder)
    wait_for(lambda: all((folder / f"ready_{rank}").exists() for rank in range(ranks)), [engine])
    return engine


def document(folder: Path) -> dict[str, Any]:
    return dict(json.loads(max((folder / ".allranks/runs").glob("*/run.json")).read_text()))


@pytest.mark.parametrize("kind", ["pytorch", pytest.param("mpi", marks=pytest.mark.slow)])
def test_ranks_that_can_save_do_so_and_the_next_start_goes_on(kind: str, tmp_path: Path) -> None:
    engine = start(tmp_path, ONE_BY_ONE, kind)
    engine.send_signal(signal.SIGINT)
    output = "".join(engine.communicate())
    assert engine.returncode == 130, output
    assert output.count("note: stopping: the ranks have 30 s to save what they have; Ctrl-C once more ends them") == 1
    state = document(tmp_path)
    assert [state["status"], state["steps"]["train"]["status"]] == ["cancelled", "cancelled"]
    assert not carrying(f"AZUREML_ROOT_RUN_ID={state['run_id']}")
    again = allranks("run", "--resume", state["run_id"], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "going on from 0 1" in again.stdout, "the end of one has not ended the other"


def test_twice_ends_everything_and_who_cannot_save_ends_at_once(tmp_path: Path) -> None:
    other = f", other: {step(f'touch {tmp_path}/begun; sleep 300')}"
    engine = start(tmp_path, "sleep 300", ranks=1, more=other)
    wait_for((tmp_path / "begun").exists)
    engine.send_signal(signal.SIGINT)
    wait_for((tmp_path / "saving_0").exists)
    engine.send_signal(signal.SIGINT)
    output = "".join(engine.communicate())
    assert engine.returncode == 130
    assert "other: cancelled" in output.partition("train: cancelled")[0], "before the one that could save"
    assert not carrying(f"AZUREML_ROOT_RUN_ID={document(tmp_path)['run_id']}")
