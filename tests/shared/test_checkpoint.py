"""Checkpoints: what is damaged is passed over, whenever the process was killed."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from shared.checkpoint import files, reading, saving
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import Refusal
from tests.helpers import run_python
from tests.waiting import wait_for


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return saving.save_checkpoint(folder, step, {"w": torch.full((3, 2), float(step))}, {"step": step}, keep)


def test_tensors_and_state_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(4, 3), "b": torch.tensor(True), "c": torch.randn(2, 2, dtype=torch.bfloat16)}
    state = {"position": [1, 2.5], "names": {"ä": None}}
    path = saving.save_checkpoint(tmp_path, 12, tensors, state)
    loaded, loaded_state = reading.load_checkpoint(path)
    assert path.name == "step-00000012"
    assert loaded_state == state
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)
    assert json.loads((tmp_path / "latest.json").read_text())["checkpoint"] == "step-00000012"


def test_numpy_arrays_need_no_torch_and_a_single_number_stays_one(tmp_path: Path) -> None:
    code = """
import sys
import numpy as np
from pathlib import Path
from shared.checkpoint import reading, saving
path = saving.save_checkpoint(Path(sys.argv[1]), 1, {"w": np.arange(6.0).reshape(2, 3).T}, {})
assert reading.load_checkpoint(path)[0]["w"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
path = saving.save_checkpoint(Path(sys.argv[1]), 2, {"step": np.asarray(np.int64(5)), "w": np.zeros((2, 3)).T}, {})
assert {name: array.shape for name, array in reading.load_checkpoint(path)[0].items()} == {"step": (), "w": (3, 2)}
assert "torch" not in sys.modules
"""
    run_python(code, tmp_path)
    loaded, _ = reading.load_checkpoint(tmp_path / "step-00000001")
    assert np.array_equal(loaded["w"].numpy(), [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 30, 4):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000002", "step-00000004"]
    newest = reading.newest_valid_checkpoint(tmp_path)
    assert newest == tmp_path / "step-00000004"
    assert reading.newest_valid_checkpoint(newest) == newest


def engine_in(folder: Path, keep: files.KeepRule | None = None) -> saving.CheckpointEngine:
    return saving.CheckpointEngine(None, folder, timedelta(seconds=30), keep)


def test_those_of_some_steps_are_kept_for_good(tmp_path: Path) -> None:
    engine = engine_in(tmp_path, files.KeepRule(newest=1, every=4))
    for step in range(1, 11):
        engine.save(step, [ShardPart.whole("w", torch.full((2,), float(step)))], {})
    engine.close()
    assert sorted(int(path.name[5:]) for path in tmp_path.glob("step-*")) == [4, 8, 10]


def test_what_is_saved_is_what_it_was_when_the_save_began(tmp_path: Path) -> None:
    weight, state = torch.zeros(2_000_000), {"step": 0}
    engine = engine_in(tmp_path)
    for step in range(1, 6):
        weight.fill_(step)
        state["step"] = step
        engine.save(step, [ShardPart.whole("w", weight)], state)
        weight.fill_(-1)
        state["step"] = -1
        assert engine.stall_seconds >= 0
    engine.close()
    for path in tmp_path.glob("step-*"):
        tensors, saved = reading.load_checkpoint(path)
        assert bool((tensors["w"] == int(path.name[5:])).all())
        assert saved == {"step": int(path.name[5:])}


def test_a_save_that_fails_behind_the_training_is_said_at_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file where the folder should be")
    engine = engine_in(tmp_path / "c")
    engine.save(1, [], {})
    with pytest.raises(OSError, match="c"):
        wait_for(engine.check)


def test_what_an_earlier_attempt_at_a_step_left_does_no_harm(tmp_path: Path) -> None:
    old = save(tmp_path, 7)
    left = {path.name: path.read_bytes() for path in old.iterdir() if path.name != "manifest.json"}
    (old / "manifest.json").unlink()  # it died before it was written
    again = save(tmp_path, 7)
    for name, content in left.items():  # and here they are seen late
        (again / name).write_bytes(content)
    assert files.find_damage(again, whole=True) is None
    (again / "manifest.json").write_bytes((again / "manifest.json").read_bytes()[:-20])  # it dies while it writes this
    assert reading.newest_valid_checkpoint(tmp_path) is None
    save(tmp_path, 7)
    assert reading.newest_valid_checkpoint(tmp_path) == again
    assert not {path.name for path in again.iterdir()} & set(left)


def test_of_two_runs_in_one_folder_the_earlier_one_ends(tmp_path: Path) -> None:
    before, *runs = (engine_in(tmp_path) for _ in range(3))
    for run in (before, *runs):  # the first of them has ended, and is no harm to those that begin
        run.save(2, [ShardPart.whole("w", np.ones(3))], {})
        run.wait()
    runs[0].save(3, [ShardPart.whole("w", np.ones(3))], {})
    with pytest.raises(Refusal, match="Another run that was started later"):
        runs[0].wait()
    for step in (3, 4):
        runs[1].save(step, [ShardPart.whole("w", np.ones(3))], {})
    runs[1].wait()
    assert reading.newest_valid_checkpoint(tmp_path) == tmp_path / "step-00000004"


def test_an_empty_or_missing_folder_has_none(tmp_path: Path) -> None:
    assert reading.newest_valid_checkpoint(tmp_path) is None
    assert reading.newest_valid_checkpoint(tmp_path / "missing") is None


@pytest.mark.parametrize("name", ["rank-00000-*.safetensors", "state-*.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "truncate", "empty", "remove"])
def test_a_damaged_one_is_passed_over(name: str, harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, 1)
    (path,) = save(tmp_path, 2).glob(name)
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    elif harm == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2 if harm == "truncate" else 0])
    assert reading.newest_valid_checkpoint(tmp_path) == tmp_path / "step-00000001"
    assert "step-00000002 is passed over" in capsys.readouterr().err
    with pytest.raises(Refusal, match="step-00000002 is damaged"):
        reading.load_checkpoint(tmp_path / "step-00000002")
    save(tmp_path, 2)
    assert reading.newest_valid_checkpoint(tmp_path) == tmp_path / "step-00000002"


def test_every_flipped_bit_of_the_tensors_is_noticed(tmp_path: Path) -> None:
    (path,) = save(tmp_path, 1).glob("*.safetensors")
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(50):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        assert reading.newest_valid_checkpoint(tmp_path) is None
        with pytest.raises(Refusal, match="step-00000001 is damaged"):
            reading.load_checkpoint(tmp_path / "step-00000001")


def test_a_flip_in_a_tensor_is_found_when_it_is_read_or_when_all_is(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (file,) = path.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-40] ^= 1  # behind it are 32 bytes of hash
    file.write_bytes(content)
    assert files.find_damage(path) is None
    assert files.find_damage(path, whole=True) == f"the sha256 of w in {file.name} differs"


def test_a_damaged_or_foreign_pointer_does_no_harm(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for pointer in ("", "{}", '{"checkpoint": "../../etc"}', '{"checkpoint": "step-00000009"}', "[]"):
        (tmp_path / "latest.json").write_text(pointer)
        assert reading.newest_valid_checkpoint(tmp_path) == tmp_path / "step-00000001"


def test_a_full_disk_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 1)
    code = """
import resource, signal, sys, numpy as np
from pathlib import Path
from shared.checkpoint import reading, saving
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # writing more fails, as on a full disk
saving.save_checkpoint(Path(sys.argv[1]), 2, {"w": np.zeros(50_000)}, {})
"""
    run_python(code, tmp_path, returncode=1)
    assert reading.newest_valid_checkpoint(tmp_path) == tmp_path / "step-00000001"
    assert save(tmp_path, 2).is_dir()
    assert len(list((tmp_path / "step-00000002").iterdir())) == 3  # what the first attempt has left is gone


SAVE_AND_DIE = """
import sys, numpy as np
from pathlib import Path
from shared.checkpoint import reading, saving
from tests.shared.kill_points import killed_at_each_change

def save(step):
    saving.save_checkpoint(folder, step, {"w": np.full(300, float(step))}, {"step": step})

folder, saved = Path(sys.argv[1]), 1
save(saved)
for _ in killed_at_each_change(lambda: save(saved + 1)):
    tensors, state = reading.load_checkpoint(reading.newest_valid_checkpoint(folder))
    assert (tensors["w"] == state["step"]).all()
    print(state["step"] - saved)
    saved = state["step"]
"""


def test_killed_at_any_moment_of_saving_something_whole_is_left(tmp_path: Path) -> None:
    new = run_python(SAVE_AND_DIE, tmp_path).stdout.split()
    assert set(new) == {"0", "1"}
    assert new == sorted(new)


def test_settings_that_differ_are_named_with_both_values() -> None:
    saved = {"settings": {"seed": 1, "batch_size": 64, "architecture": "mlp"}}
    reading.check_same_settings(saved, {"seed": 1, "batch_size": 64}, "here")
    with pytest.raises(Refusal, match=r"here belongs to another training: seed was 1 and is now 2; batch_size was 64"):
        reading.check_same_settings(saved, {"seed": 2, "batch_size": 32, "architecture": "mlp"}, "here")
    with pytest.raises(Refusal, match="written by another component"):
        reading.check_same_settings({"epoch": 1}, {"seed": 1}, "here")


def test_a_manifest_that_names_another_step_is_passed_over(tmp_path: Path) -> None:
    kept = saving.save_checkpoint(tmp_path, 3, {"a": np.arange(3)}, {})
    newest = saving.save_checkpoint(tmp_path, 5, {"a": np.arange(5)}, {})
    manifest = newest / files.MANIFEST_FILE
    manifest.write_text(manifest.read_text().replace('"step": 5', '"step": 4'))
    assert files.find_damage(newest) == "the sha256 of manifest.json differs"
    manifest.write_bytes((kept / files.MANIFEST_FILE).read_bytes())
    assert files.find_damage(newest) == "its manifest says step 3, its name step 5"
    assert reading.newest_valid_checkpoint(tmp_path) == kept
