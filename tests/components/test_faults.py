"""Every trainer with every fault: what ends, what goes on, what is printed, and which bits come out of a resumed run."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from shared.checkpoint.reading import CheckpointReader, load_checkpoint, newest_valid_checkpoint
from shared.data import Array, Index, Statistics
from shared.data.write import write_index, write_shard
from tests.blob_mount import WORST, blob_mount, can_mount
from tests.components.launched import MPI_TRAINERS, end_launched, launched, run_launched
from tests.components.training import lines
from tests.faults import Moment, fault_code
from tests.helpers import RankResult, finish
from tests.shared.samples import write_language_dataset, write_text_classification_dataset
from tests.small_disk import can_mount_disk, small_disk
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 4
"""Steps of an epoch; a training has two."""
VALIDATION_ROWS = 400
"""Some passes of each rank: the ranks agree to stop within two."""
PAGE = 4096
STACK = "(most recent call first)"
PARAMETER_SERVER = "train_tf_parameter_server"
SAME_BITS = {
    "train_torchrun": "train_ddp",
    "train_lightning": "train_ddp",
    "train_horovod": "train_ddp",
    "train_horovod_keras": "train_tf_multiworker",
}
"""On two ranks these end with the weights of another trainer, whose uninterrupted run is theirs too."""
BERT = {"model_type": "bert", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip
MODULE = """
import torch
from lightning import LightningModule
from torch.nn import functional


class Net(LightningModule):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.body = torch.nn.Linear(input_shape[0], num_outputs)

    def forward(self, rows):
        return self.body(rows)

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", functional.cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

    def on_validation_end(self):
        print("validated to the end")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
"""
"""What `train_lightning_module` trains: Lightning validates it, and lowers the rate after each validation."""


@dataclass
class Training:
    """A trainer with a dataset and options of two epochs, in a folder of its own."""

    name: str
    folder: Path
    uninterrupted: dict[str, Path]
    options: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        self.trainer = self.name.removesuffix("_module")
        self.out = self.folder / "out"
        self.options = {"batch_size": 16, "epochs": 2, "log_every": 1, "checkpoint_every": 2}
        data = self.folder / "data"
        if self.trainer == "train_transformers":
            (self.folder / "tiny").mkdir()
            (self.folder / "tiny" / "config.json").write_text(json.dumps(BERT))
            self.options |= {"base_config": self.folder / "tiny", "sharding": "fsdp"}
            self.data = write_text_classification_dataset(data, rows=(16 * STEPS, VALIDATION_ROWS, 4))
        elif self.trainer == "train_fsdp":
            self.options |= {"layers": 1, "width": 64, "heads": 4}
            self.data = write_language_dataset(data, rows=(16 * STEPS, VALIDATION_ROWS, 4))
        else:
            self.data = write_table(data)
        if self.name == "train_lightning_module":
            (self.folder / "code").mkdir()
            (self.folder / "code" / "net.py").write_text(MODULE)
            self.options |= {"module": "net.py:Net", "model_code": self.folder / "code"}
        self.victim = 0 if self.trainer == PARAMETER_SERVER else 1  # worker 0 trains, the others serve

    def end(
        self, kind: str = "", step: int = 0, where: Moment = "step", *, rank: int | None = None, **options: object
    ) -> list[RankResult]:
        """Train, with a fault of a rank at a step if a kind is given, and wait for the end."""
        victim = self.victim if rank is None else rank
        before = fault_code(kind, step, victim, where=where) if kind else "pass"
        return end_launched(self.trainer, self.data, self.out, self.options | options, before=before)

    def die(self, step: int, where: Moment, rank: int) -> None:
        """Train until a rank dies of SIGKILL, and with it the others or their launcher."""
        results = self.end("SIGKILL", step, where, rank=rank)
        assert all(result.returncode for result in results), printed(results)
        assert len(results) == 1 or results[rank].returncode == -signal.SIGKILL, printed(results)

    def finish(self, **options: object) -> list[RankResult]:
        """Train to the end, and expect success."""
        return run_launched(self.trainer, self.data, self.out, self.options | options)

    def resume(self, **options: object) -> int:
        """Train to the end from a checkpoint; return its step."""
        printed = self.finish(**options)[0].stdout
        found = re.search(r"continuing from \S+: step (\d+), epoch \d", printed)
        assert found, printed
        return int(found[1])

    def whole(self) -> Path:
        """The output of the training without a fault, made when it is first asked for."""
        name = SAME_BITS.get(self.name, self.name)
        if name not in self.uninterrupted:
            out = self.folder / "whole"
            run_launched(name.removesuffix("_module"), self.data, out, self.options)
            self.uninterrupted[name] = out
        return self.uninterrupted[name]

    def check_model(self, out: Path | None = None) -> None:
        """Check that the model has the bits of the training without a fault; steps of parameter servers overlap."""
        out = out or self.out
        if self.trainer == PARAMETER_SERVER:
            newest = newest_valid_checkpoint(out / "checkpoints")
            assert int(load_checkpoint(newest)[0]["optimizer.0"]) == 2 * STEPS, "each step is counted once"
        else:
            assert weights(out) == weights(self.whole())


def write_table(folder: Path) -> Path:
    arrays, draw = {"x": Array((8,), "float32"), "y": Array((), "int64")}, np.random.default_rng(0)
    shards = {}
    for split, rows in {"train": 16 * STEPS, "validation": VALIDATION_ROWS, "test": 4}.items():
        chunks = [{"x": draw.random((rows, 8), "float32"), "y": draw.integers(0, 2, rows)}]
        shards[split] = (write_shard(folder, split, 0, rows=rows, arrays=arrays, chunks=chunks),)
    write_index(folder, Index("classification", arrays, ("a", "b"), Statistics((0.5,) * 8, (0.3,) * 8), shards))
    return folder


def weights(out: Path) -> dict[str, bytes]:
    (path,) = (out / "model").rglob("*.safetensors")
    return {name: tensor.tobytes() for name, tensor in load_file(path).items()}


def printed(results: list[RankResult]) -> str:
    return "".join(result.stdout + result.stderr for result in results)


def history(out: Path) -> list[dict[str, float]]:
    numbers: list[dict[str, float]] = json.loads((out / "metrics" / "metrics.json").read_text())["history"]
    return numbers


def steps_in(checkpoints: Path) -> list[int]:
    return sorted(int(path.parent.name[5:]) for path in checkpoints.glob("step-*/manifest.json"))


# ---- killed: another start goes on from the newest whole checkpoint


def killed_in_a_step(training: Training) -> None:
    training.die(7, "step", training.victim)
    assert training.resume() in (4, 6), "that of step 6 may have been whole already"
    training.check_model()
    assert [entry["step"] for entry in history(training.out)] == [STEPS, 2 * STEPS]


def killed_in_saves_on_a_mount(training: Training) -> None:
    """With all outputs on a mount as awkward as a blob store; a rank dies when it has written, and then rank 0."""
    if not can_mount():
        pytest.skip("mounting with FUSE needs root and /dev/fuse")
    with blob_mount(training.folder / "blob", replace(WORST, listings=True)) as mount:
        training.out, behind = mount / "out", training.folder / "blob" / "behind" / "out"
        for step, rank in ((4, training.victim), (6, 0)):
            training.die(step, "files", rank)
            newest = newest_valid_checkpoint(behind / "checkpoints")
            assert newest is not None
            assert newest.name == f"step-{step - 2:08d}"
        assert training.resume() == 4
        training.check_model(behind)
        assert history(behind)


# Each batch that a rank takes, by the step that is made of it.
RECORD = """
import hashlib, importlib, json, os, sys, uuid
feed = importlib.import_module(sys.argv[1])
given = feed.BatchFeed.epoch
def epoch(self, epoch, start_batch=0):
    plan, rank = self._plan, self._rank
    path = f"rows-{uuid.uuid4()}.jsonl"
    for number, batch in enumerate(given(self, epoch, start_batch), start=start_batch):
        x = batch[0].numpy()
        rows = [hashlib.sha256(row.tobytes()).hexdigest() for row in x]
        line = {"step": epoch * self.steps_per_epoch + number, "rank": rank, "world": plan.world_size, "rows": rows}
        with open(path, "a") as opened:
            opened.write(json.dumps(line) + chr(10))
        yield batch
feed.BatchFeed.epoch = epoch
"""


def taken_rows(folder: Path, world: int) -> dict[int, list[str]]:
    """The rows of each step that all ranks of a start have taken, in the order of the ranks; its files are removed."""
    parts: dict[int, dict[int, list[str]]] = defaultdict(dict)
    for path in folder.glob("rows-*.jsonl"):
        text, _, _ = path.read_text().rpartition("\n")
        for line in map(json.loads, text.splitlines()):
            assert line["world"] == world
            parts[line["step"]][line["rank"]] = line["rows"]
        path.unlink()
    whole = {step: ranks for step, ranks in parts.items() if len(ranks) == world}
    return {step: [row for _, rows in sorted(ranks.items()) for row in rows] for step, ranks in whole.items()}


def killed_on_four_two_and_one_rank(training: Training) -> None:
    """The steps are made of the same rows in the same order, and no row is left out or comes twice in an epoch."""
    framework = "keras" if "tf_" in training.trainer else "torch"
    (training.folder / "record.py").write_text(RECORD)
    record = f"import runpy, sys; sys.argv = ['', 'shared.training.{framework}.feed']; "
    record += f"runpy.run_path({str(training.folder / 'record.py')!r})"
    options = training.options | {"epochs": 6, "checkpoint_every": 3, "precision": "fp64"}
    alone = training.folder / "alone"

    def train(out: Path, count: int, fault: str = "pass") -> dict[int, list[str]]:
        before = f"{record}; {fault}"
        results = end_launched(training.trainer, training.data, out, options, count=count, before=before)
        assert any(result.returncode for result in results) == (fault != "pass"), printed(results)
        return taken_rows(out, count)

    wanted = train(alone, 1)
    assert sorted(wanted) == list(range(6 * STEPS))
    for epoch in range(6):
        rows = [row for step in range(epoch * STEPS, (epoch + 1) * STEPS) for row in wanted[step]]
        assert len(set(rows)) == len(rows) == 16 * STEPS
    done = 0
    for count, step in ((4, 8), (2, 14), (1, 20), (4, 0)):
        taken = train(training.out, count, fault_code("SIGKILL", step, count - 1) if step else "pass")
        assert taken == {number: wanted[number] for number in taken}
        assert sorted(taken) == list(range(min(taken), max(taken) + 1))
        assert min(taken) <= done, "no step is left out"
        assert min(taken) > 0 or count == 4, "it goes on from a checkpoint"
        done = max(taken) + 1
    assert done == 6 * STEPS
    if framework == "torch":
        ours, theirs = (load_file(next((out / "model").rglob("*.safetensors"))) for out in (training.out, alone))
        assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) < 1e-9


# ---- asked to stop


def asked_to_stop_in_a_validation(training: Training) -> None:
    """The validation is left off, the steps are saved, and the next start begins with the validation."""
    options = {"checkpoint_every": 10**6}
    newest = None
    for _ in range(2):  # also where nothing but the validation is left to do
        results = training.end("SIGTERM", STEPS, "validation", **options)
        assert f"stopped by SIGTERM after step {STEPS}" in results[0].stdout, printed(results)
        assert "validated to the end" not in results[0].stdout
        assert len(lines(training.out)) == STEPS  # none for the epoch
        assert newest in (None, newest_valid_checkpoint(training.out / "checkpoints"))
        newest = newest_valid_checkpoint(training.out / "checkpoints")
        state = CheckpointReader(newest).state
        position = state.get("allranks", state)["position"]  # beside what Lightning keeps
        assert (position["step"], position["batch"], position["history"]) == (STEPS, STEPS, [])
    assert training.resume(**options) == STEPS
    assert [entry["step"] for entry in history(training.out)] == [STEPS, 2 * STEPS]
    assert all(entry["validation_loss"] > 0 for entry in history(training.out))
    training.check_model()


def asked_to_stop_without_room(training: Training, room: float, code: int) -> None:
    with disk(training, room) as checkpoints:
        results = training.end("SIGTERM", 7, checkpoints=checkpoints, epochs=10_000)
        kept = steps_in(checkpoints)
    assert [result.returncode for result in results] == [code, code]
    assert "Traceback" not in printed(results)
    why = rf"{re.escape(str(checkpoints))} did not take it \(No space left on device\)"
    if kept:
        said = rf"after step \d+, which is not saved: {why}; the last checkpoint is of step {kept[-1]}"
    else:
        said = rf"after step \d+, and nothing of it is saved: {why}"
    assert re.search(rf"stopped by SIGTERM {said}", printed(results))


# ---- a rank that stands still: it is named, all tell where they stood, and all end


def stopped(training: Training) -> None:
    """The last process is: a parameter server, from outside, or a rank, which a launcher ends."""
    reached, is_server = training.folder / "reached", training.trainer == PARAMETER_SERVER
    fault = fault_code("nothing", 5, 0, once=reached) if is_server else fault_code("SIGSTOP", 5, 1)
    limits = {"init_timeout": 2, "epochs": 10_000} if is_server else {"step_timeout": 0.5, "checkpoint_minutes": 0}
    options = training.options | limits
    with launched(training.trainer, training.data, training.out, options, before=fault) as ranks:
        if is_server:
            wait_for(reached.exists, [rank.process for rank in ranks])
            ranks[-1].kill(signal.SIGSTOP)
        for rank in ranks[:-1]:
            rank.process.wait()
        if len(ranks) > 1:
            ranks[-1].kill()
        results = finish(ranks)
    told, title = printed(results), "ps 0" if is_server else "rank 1"
    assert re.search(rf"distributed: {title} \(node \d+\) (stands still|makes no progress): ", told), told[-3000:]
    assert told.count("where it stood:") >= 1
    assert told.count(STACK) >= 1
    assert any(result.returncode for result in results) or training.trainer in MPI_TRAINERS


def hangs(training: Training) -> None:
    told = printed(training.end("hang", 5, step_timeout=0.5, checkpoint_minutes=0, checkpoint_every=0))
    assert re.search(r"rank 1 \(node 0\) makes no progress: nothing has moved for ", told), told[-3000:]
    assert told.count("where it stood:") >= 2
    assert told.count(STACK) >= 2


def hangs_in_native_code(training: Training, where: Moment, step: int) -> None:
    """With Python's lock; at the edge of a pause another wait may end first, or faulthandler's watchdog."""
    told = printed(training.end("native hang", step, where, step_timeout=0.5, checkpoint_minutes=0))
    named = r"rank 1 \(node 0\) (makes no progress: nothing has moved for |has died)|timed out waiting for rank 1"
    assert re.search(named, told), told[-3000:]
    assert told.count("where it stood:") >= 1, "the rank itself is ended by faulthandler's watchdog"
    assert told.count(STACK) >= 2


# ---- a storage without room


@contextmanager
def disk(training: Training, room: float) -> Iterator[Path]:
    """A disk with room for so many checkpoints; the folder for them on it."""
    if not can_mount_disk():
        pytest.skip("the small disk has to be mounted, which takes root")
    newest = newest_valid_checkpoint(training.whole() / "checkpoints")
    assert newest is not None
    size = sum(-(-path.stat().st_size // PAGE) * PAGE for path in newest.iterdir())
    with small_disk(training.folder / "disk", int(room * size) + 2 * PAGE) as place:
        yield place / "checkpoints"


def room_for(training: Training, room: float) -> None:
    """It trains on to the same model, says so, and keeps what it can."""
    with disk(training, room) as checkpoints:
        text = printed(training.finish(checkpoints=checkpoints, keep_checkpoints=2))
        found = steps_in(checkpoints)
        left = [path for path in checkpoints.glob("step-*") if not (path / "manifest.json").is_file()]
        newest = newest_valid_checkpoint(checkpoints)
    assert not left
    if training.trainer != PARAMETER_SERVER:
        training.check_model()
    numbers = json.loads((training.out / "metrics" / "metrics.json").read_text())
    if room > 2:
        assert found == [6, 8]
        assert newest is not None
        assert newest.name == "step-00000008"
        assert "is full: the oldest checkpoint was removed to save step" in text
        assert "failed_saves" not in numbers
        return
    assert len(found) == int(room)
    assert (newest is None) == (room < 1)
    assert "training goes on" in text
    assert "did not take it (No space left on device)" in text
    assert numbers["failed_saves"] >= 1
    assert numbers.get("last_saved_step") == (found[-1] if found else None)
    assert any("failed_saves" in line["metrics"] for line in lines(training.out))


def metrics_on_a_full_disk(training: Training) -> None:
    """Metrics and logs that cannot be written end nothing."""
    if not can_mount_disk():
        pytest.skip("the small disk has to be mounted, which takes root")
    outputs = {name: training.folder / name for name in ("model", "checkpoints")}
    with small_disk(training.out, 30 * PAGE) as out:
        (out / "outputs").mkdir()
        (out / "other").write_bytes(bytes(shutil.disk_usage(out).free))
        text = printed(training.finish(**outputs))
    assert text.count("could not be written") == 2
    assert "metrics.json could not be written" in text
    assert "the metrics of step" in text


def no_large_file(training: Training) -> None:
    """A storage that takes no checkpoint ends nothing; one that does not take the model fails the training."""
    results = training.end("small files", 1, rank=0)
    assert any(result.returncode for result in results)
    assert "training goes on" in printed(results)
    assert "was not saved" in printed(results)
    assert "File too large" in printed(results).splitlines()[-1]
    assert not steps_in(training.out / "checkpoints")


# ---- ranks that fail or differ


def raises(training: Training) -> None:
    results = training.end("error", 5)
    assert any(result.returncode for result in results)
    assert printed(results).count("rank 1 (node 0) failed with RuntimeError: a fault of the test") == 1
    assert not list((training.out / "model").glob("*"))


# After the last step of an epoch: the ranks of ZeRO exchange their weights in each step.
SPOILT = f"""from shared.training.core.run import TrainingRun
        end_step = TrainingRun.end_step
        def spoil(run):
            saver = run._saver
            if run._world.rank == 1 and run.at.step == {STEPS - 1}:
                if hasattr(saver, "model"):
                    weight = saver.model.trainable_variables[-1]
                    weight.assign(weight + 1e-3)
                    name = weight.path
                else:
                    owner = getattr(saver, "trainer", None) or getattr(saver, "_trainer", None)
                    owner = owner or getattr(saver, "engine", saver)
                    module = getattr(owner, "lightning_module", None) or getattr(owner, "model", None) or owner.module
                    name, weight = list(module.named_parameters())[-1]
                    weight.data.view(-1)[-1] += 1e-3
                print(f"SPOILT {{name}} END", flush=True)
            return end_step(run)
        TrainingRun.end_step = spoil"""
REPLICATED: dict[str, list[dict[str, object]]] = {
    "train_transformers": [{"sharding": "none"}, {"sharding": "deepspeed"}],
    "train_deepspeed": [{"zero_stage": 0}, {"zero_stage": 2}],
}
"""Options with which each rank has whole weights, where it is not all."""


def weights_differ(training: Training) -> None:
    """The rank is named with the weight, and no model is saved."""
    for more in REPLICATED.get(training.trainer, [{}]):
        out = training.folder / "-".join(("out", *map(str, more.values())))
        results = end_launched(training.trainer, training.data, out, training.options | more, before=SPOILT)
        told = printed(results)
        name = told.partition("SPOILT ")[2].partition(" END")[0]
        assert name, told[-3000:]
        said = f"The weights of rank 1 are not those of rank 0 after step {STEPS}, first {name}: its digest is "
        assert told.count(said) == 1, told[-3000:]
        assert any(result.returncode for result in results)
        assert "Error: The weights" not in told, "no traceback"
        assert not list((out / "model").glob("*"))


# ---- the table


FAULTS: dict[str, Callable[[Training], None]] = {
    "killed in a step": killed_in_a_step,
    "killed in saves on a mount": killed_in_saves_on_a_mount,
    "killed on four, two and one rank": killed_on_four_two_and_one_rank,
    "asked to stop in a validation": asked_to_stop_in_a_validation,
    "asked to stop with room for one": partial(asked_to_stop_without_room, room=1.5, code=143),
    "asked to stop with room for none": partial(asked_to_stop_without_room, room=0.5, code=1),
    "stopped": stopped,
    "hangs": hangs,
    "hangs in native code": partial(hangs_in_native_code, where="step", step=5),
    "hangs in native code in a save": partial(hangs_in_native_code, where="save", step=6),
    "room for two": partial(room_for, room=2.5),
    "room for one": partial(room_for, room=1.5),
    "room for none": partial(room_for, room=0.5),
    "metrics on a full disk": metrics_on_a_full_disk,
    "no large file": no_large_file,
    "raises": raises,
    "weights differ": weights_differ,
}
ALWAYS: dict[str, set[str]] = {
    "train_ddp": {
        "killed on four, two and one rank",
        "asked to stop with room for none",
        "room for two",
        "metrics on a full disk",
    },
    "train_torchrun": set(),  # test_train_torchrun.py has a kill
    "train_fsdp": {"killed in saves on a mount", "asked to stop in a validation"},
    "train_deepspeed": {"asked to stop with room for one", "weights differ"},
    "train_lightning": {"hangs", "no large file", "raises"},
    "train_lightning_module": set(),
    "train_transformers": {"stopped"},
    "train_horovod": {"room for one"},
    "train_horovod_keras": set(),  # its two imports take 8 s of processor on each rank
    "train_tf_multiworker": {"killed in a step"},
    "train_tf_parameter_server": {"killed in a step"},
}
"""The faults of each trainer in every run of the tests; the whole table is exhaustive."""
ROW_ORDER = ("train_ddp", "train_torchrun", "train_horovod", "train_tf_multiworker")


def is_possible(trainer: str, fault: str) -> bool:
    """Return whether a fault can meet a trainer, or shows something that it does not show with another one."""
    if trainer == "train_lightning_module":
        return fault == "asked to stop in a validation"
    if trainer == PARAMETER_SERVER and (fault in ("weights differ", "raises") or fault.startswith("hangs")):
        return False  # its servers compute in threads of TensorFlow's own
    if fault.startswith("asked to stop with"):
        return trainer not in (*MPI_TRAINERS, "train_torchrun", PARAMETER_SERVER)  # others have other exit codes
    if fault == "weights differ":
        return trainer != "train_fsdp"  # each rank has a part
    return fault != "killed on four, two and one rank" or trainer in ROW_ORDER


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, Path]:
    """The outputs of trainings without a fault, by trainer."""
    return {}


@pytest.mark.parametrize(
    ("trainer", "fault"),
    [
        pytest.param(trainer, fault, marks=() if fault in ALWAYS[trainer] else pytest.mark.exhaustive)
        for trainer in ALWAYS
        for fault in FAULTS
        if is_possible(trainer, fault)
    ],
)
def test_a_trainer_with_a_fault(trainer: str, fault: str, uninterrupted: dict[str, Path], tmp_path: Path) -> None:
    FAULTS[fault](Training(trainer, tmp_path, uninterrupted))
