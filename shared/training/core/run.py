"""The bookkeeping around a training loop: what is reported, when a checkpoint is due, when to stop."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from types import TracebackType
from typing import Any, Self

from shared.distributed import Refusal, UnsavedError, World
from shared.distributed.errors import print_line
from shared.distributed.liveness import expect_silence, note_progress, note_step, silence_expected
from shared.settings.fields import values_of
from shared.settings.trainer import TrainerSettings
from shared.storage import make_folder, may_pass, report_moves, write_text
from shared.tracking import Tracker
from shared.training.core.meter import LossMeter, MeterReading
from shared.training.core.position import CheckpointSaver, TrainingPosition
from shared.training.core.schedule import LearningSchedule
from shared.training.core.time_split import TimeReport

_NOTE_SECONDS = 10.0
"""An epoch that takes long is heard of this often."""


class TrainingRun:
    """One training from its position to its last epoch; a context manager around the loop.

    Every rank calls the same methods at the same steps, because the ranks agree inside them. `at`, where the training
    starts, is moved on as it goes. `throughput` makes further numbers of the samples per second; `steps_per_epoch` is
    of a whole epoch, where the schedule ends in the middle of one. `groups` are the ranks that compute alike, if not
    all of them do.
    """

    def __init__(
        self,
        settings: TrainerSettings,
        world: World,
        saver: CheckpointSaver,
        at: TrainingPosition,
        schedule: LearningSchedule,
        meter: LossMeter,
        throughput: Callable[[float], Mapping[str, float]] = lambda _: {},
        steps_per_epoch: int | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._settings, self._world, self._saver, self.at, self._schedule = settings, world, saver, at, schedule
        self._steps_per_epoch = steps_per_epoch or schedule.steps // settings.loop.epochs
        self._saved, self._saved_at = saver.own_step, time.monotonic()
        self._started = self._epoch_started = self._noted = time.perf_counter()
        self._steps_ended = self._started
        self._validation_seconds: float | None = None
        self._speed: list[float] = []
        self._stalls: list[float] = []
        self._unreported: dict[str, float] = {}
        self._meter, self._throughput, self._times = meter, throughput, TimeReport(world, groups)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        report_moves(note_progress)
        self._tracker = self._open.enter_context(Tracker(self._world, self._schedule.steps))
        last = self._tracker.take_back(self._is_done)
        if last > self.at.step:
            self._world.note(f"steps {self.at.step + 1} to {last} are made again")
        self._open.enter_context(self._meter.stopping_on_sigterm())
        self._tracker.params({name: value for name, value in values_of(self._settings).items() if value is not None})
        self._note_nothing_left()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        expect_silence()
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self._world.announce_failure(error)
        elif error is None:
            self._saver.finish()  # a Trainer may have saved after its last step
        self._open.__exit__(kind, error, traceback)

    def remaining_epochs(self) -> range:
        """Epochs of which something is left to do, from 0: steps to make, or only the numbers of its end to report."""
        at, end = self.at, math.ceil(self._schedule.steps / self._steps_per_epoch)
        if at.step < self._schedule.steps:
            return range(at.epoch, end)
        reported = at.batch == 0 or bool(at.history and at.history[-1]["step"] == at.step)
        return range(at.epoch, at.epoch + (not reported))

    def log(self, numbers: Mapping[str, float]) -> None:
        """Report further numbers at the current step, which the model's own code has measured."""
        self._tracker.log(numbers, self.at.step)

    def end_step(self) -> bool:
        """Count a step; report, save and see whether to stop where that is due. True: stop, everything is saved.

        Raises:
            Refusal: if the loss is not finite any more.
        """
        self._meter.end_step()
        self._saver.check()
        at, every = self.at, self._settings.checkpoints.checkpoint_every
        at.step += 1
        at.batch += 1
        save, stop = every > 0 and at.step % every == 0, self._meter.stop.is_last()
        last_of_epoch = at.batch == self._steps_per_epoch or at.step == self._schedule.steps
        if not save and not stop and at.step % self._settings.reports.log_every and not last_of_epoch:
            return False
        reading = self._meter.read(save=self._is_save_due(last_of_epoch=last_of_epoch), split=last_of_epoch)
        at.epoch_loss += reading.loss_sum
        self._check_finite("loss", reading.loss)
        self._report(reading)
        if save or stop or reading.save:
            self._save()
        if stop:
            self._finish_stopped()
        self._steps_ended = time.perf_counter()
        if last_of_epoch and self._validation_seconds is None:
            expect_silence()  # the first validation may compile
        return stop

    def end_epoch(self, validation: Mapping[str, float] | None) -> bool:
        """Report an epoch with its `validation` numbers, and save if a checkpoint is due at each epoch.

        Without them, because all ranks have left off measuring in order to stop, the last step is saved instead: the
        run that goes on begins with the validation. True: stop, everything is saved.

        An epoch that the last step cuts short is reported as far as it went, and stays the current one: a run that goes
        on with more steps makes the rest of it, and its numbers take the place of these.

        Raises:
            Refusal: if the validation loss is not finite.
            UnsavedError: if the ranks' weights differ.
        """
        note_step()  # the first validation is over
        at, now = self.at, time.perf_counter()
        self._validation_seconds = now - self._steps_ended
        if validation is None:
            if self._saved != at.step:
                self._save()
            self._finish_stopped()
            return True
        self._meter.restart()  # the validation is no part of the steps
        self._check_finite("validation loss", validation.get("loss", 0.0))
        if self._world.world_size > 1 and (digests := self._saver.weight_digests()):
            check_same_weights(self._world, digests, at.step)
        numbers = {
            "epoch": float(at.epoch + 1),
            "train_loss": at.epoch_loss / max(1, at.batch),
            **{f"validation_{name}": value for name, value in validation.items()},
            "epoch_seconds": now - self._epoch_started,
            **self._meter.hardware(),
        }
        at.history = [entry for entry in at.history if entry["epoch"] != numbers["epoch"]]
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}  # JSON has no others
        at.history.append({"step": float(at.step), **finite})
        self._tracker.log(numbers, at.step)
        shown = [
            f"{name.replace('_', ' ')} {numbers[name]:.4f}"
            for name in numbers
            if name.endswith(("loss", "accuracy", "rmse", "bits_per_byte"))
        ] + self._times.end_epoch()
        self._world.note(
            f"epoch {at.epoch + 1}/{math.ceil(self._schedule.steps / self._steps_per_epoch)}  " + "  ".join(shown)
        )
        if at.batch >= self._steps_per_epoch:
            at.epoch, at.batch, at.epoch_loss = at.epoch + 1, 0, 0.0
        self._epoch_started = self._noted = now
        # To write over a manifest would lose both checkpoints in a kill.
        if self._settings.checkpoints.checkpoint_every == 0 and self._saved != at.step:
            self._save()
        return False

    def finish(self) -> None:
        """Save the last step and write `metrics.json`: the last epoch's numbers, the whole run's, and the history.

        A storage that takes no checkpoint, or no metrics, ends nothing: the model may still be written.
        """
        if self._saved != self.at.step:
            self._save()
        self._saver.finish()
        if not self._world.is_main:
            return
        if failed := self._failed_saves():
            self._tracker.log(failed, self.at.step)
        last = self.at.history[-1] if self.at.history else {}
        speed = statistics.median(self._speed) if self._speed else 0.0
        document: dict[str, Any] = {
            **last,
            "steps": self.at.step,
            "samples_per_second": speed,
            **self._throughput(speed),
            "seconds": time.perf_counter() - self._started,
            "world_size": self._world.world_size,
            **self._saving_times(),
            **self._times.document(),
            "history": self.at.history,
        }
        try:
            make_folder(self._settings.metrics)
            write_text(self._settings.metrics / "metrics.json", json.dumps(document, indent=2) + "\n")
        except OSError as error:
            if not may_pass(error):
                raise
            print_line(f"warning: {self._settings.metrics / 'metrics.json'} could not be written: {error}")

    def save_model(self, save: Callable[[], None]) -> None:
        """Let rank 0 write the trained model with `save`; every rank calls this."""
        self._world.once(save, name="save the model", scope="job", timeout=self._world.solo_timeout)

    def _is_done(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether what was reported at a step before this start is not reported again."""
        if step != self.at.step or "epoch" not in metrics:
            return step <= self.at.step
        return bool(self.at.history) and self.at.history[-1]["step"] == step

    def _note_nothing_left(self) -> None:
        """Say why no step is made, where the checkpoint has done all that is asked for, or more."""
        done, asked, loop = self.at.step, self._schedule.steps, self._settings.loop
        if done < asked:
            return
        name, value = ("max_steps", loop.max_steps) if loop.max_steps == asked else ("epochs", loop.epochs)
        self._world.note(
            f"note: nothing is left to train: {name} {value} asks for {asked} steps, and the checkpoint "
            f"has done {done}; to train on from it, raise {name}"
        )

    def _is_save_due(self, *, last_of_epoch: bool) -> bool:
        """Whether the last checkpoint is so old that another one is due; by the clock of rank 0, which all follow.

        After the last step of an epoch it would become older by a validation, in which nothing is saved: by as much as
        the last one took, or, before there was one, the steps of the epoch.
        """
        minutes, older = self._settings.checkpoints.checkpoint_minutes, 0.0
        if last_of_epoch:
            older = self._validation_seconds or time.perf_counter() - self._epoch_started
        return minutes > 0 and time.monotonic() - self._saved_at + older >= 60 * minutes

    def _finish_stopped(self) -> None:
        failure = self._saver.finish()
        if failed := self._failed_saves():
            self._tracker.log(failed, self.at.step)
        said, last = f"stopped by SIGTERM after step {self.at.step}", self._saver.last_saved
        if failure is None:
            self._world.note(f"{said}; start again with the same checkpoints folder")
        elif last is None:
            raise UnsavedError(f"The training was {said}, and nothing of it is saved: {failure}.")
        else:
            self._world.note(f"{said}, which is not saved: {failure}; the last checkpoint is of step {last}")

    def _save(self) -> None:
        began, self._saved_at = time.perf_counter(), time.monotonic()
        # A mount may take minutes for one write, and the waits of a save have limits of their own.
        with silence_expected(), self._meter.clock.saving():
            self._saver.save(self.at)
        self._saved = self.at.step
        self._stalls.append(time.perf_counter() - began)
        self._unreported = {"checkpoint_stall_ms": 1e3 * self._stalls[-1]}

    def _saving_times(self) -> dict[str, float]:
        """How long the training stood still for a checkpoint, at the median and in all, and how long one is written."""
        if not self._stalls:
            return {}
        return {
            "checkpoint_stall_ms": 1e3 * statistics.median(self._stalls),
            "checkpoint_stall_seconds": sum(self._stalls),
            "checkpoint_writing_seconds": self._saver.writer.writing_seconds,
            **self._failed_saves(),
        }

    def _failed_saves(self) -> dict[str, float]:
        """How many checkpoints storage did not take, and of which step the last one is; nothing if it took all."""
        failed, last = self._saver.writer.failed_saves, self._saver.last_saved
        return {"failed_saves": failed, **({} if last is None else {"last_saved_step": last})} if failed else {}

    def _report(self, reading: MeterReading) -> None:
        speed = reading.steps * self._settings.batch.batch_size / max(reading.seconds, 1e-9)
        self._speed.append(speed)
        numbers = {
            "loss": reading.loss,
            "learning_rate": self._schedule(self.at.step - 1),
            "samples_per_second": speed,
            **self._throughput(speed),
            **self._unreported,
            **self._failed_saves(),
            **self._report_times(reading),
        }
        self._unreported = {}
        self._tracker.log(numbers, self.at.step)
        now = time.perf_counter()
        if now - self._noted >= _NOTE_SECONDS:
            self._noted = now
            self._world.note(
                f"step {self.at.step:,}/{self._schedule.steps:,}  loss {reading.loss:.4f}  {speed:,.0f} samples/s"
            )

    def _report_times(self, reading: MeterReading) -> dict[str, float]:
        """Give the metrics of the time split, where there is one, and name ranks that have become slow."""
        if not reading.splits:
            return {}
        numbers, slow = self._times.add(reading.splits, reading.split_steps, self.at.step)
        for rank in slow:
            self._world.note(f"step {self.at.step:,}: {rank}")
        return numbers

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            self._saver.finish()
            settings, last = self._settings, self._saver.last_saved
            raise Refusal(
                f"The {what} is {value} at step {self.at.step}, in epoch {self.at.epoch + 1} of "
                f"{settings.loop.epochs}. Lower "
                f"learning_rate (it is {settings.optimizer.learning_rate:g}), raise warmup_fraction, set "
                f"clip_norm, or use a wider precision than {settings.precision.precision}. "
                + ("There is no checkpoint yet." if last is None else f"The last checkpoint is of step {last}.")
            )


def check_same_weights(world: World, digests: list[tuple[str, str]], step: int) -> None:
    """Compare the weights that train over all ranks, bit by bit; every rank calls this.

    `digests` are name and digest of each, in the same order on every rank. A rank sends one digest of all; those of
    each follow where ranks differ.

    Raises:
        UnsavedError: naming the ranks that differ from most others, and the first weight that does.
    """
    total = hashlib.sha256("".join(digest for _, digest in digests).encode()).hexdigest()
    totals = world.collect(total, "weights") or []
    is_same = world.once(lambda: len(set(totals)) == 1, name="weights", scope="job", timeout=world.step_timeout)
    if not is_same:
        every = world.collect_in_rounds(digests, "digests of weights") or []
        world.once(lambda: _refuse(every, step), name="different weights", scope="job", timeout=world.step_timeout)


def _refuse(every: Sequence[Sequence[tuple[str, str]]], step: int) -> None:
    common = Counter(map(str, every)).most_common(1)[0][0]  # that of rank 0, where no more ranks have another one
    like = next(rank for rank, one in enumerate(every) if str(one) == common)
    unlike = [rank for rank, one in enumerate(every) if str(one) != common]
    pairs = zip_longest(every[like], every[unlike[0]], fillvalue=("nothing", "none"))
    (name, right), (_, wrong) = next(pair for pair in pairs if pair[0] != pair[1])
    raise UnsavedError(
        f"The weights of {'ranks' if len(unlike) > 1 else 'rank'} {', '.join(map(str, unlike))} are not those of rank "
        f"{like} after step {step}, first {name}: its digest is {wrong[:12]} on rank {unlike[0]}, {right[:12]} on rank "
        f"{like}. All ranks have to make the same steps: look for a learning rate, a condition or a change of weights "
        "that depends on the rank. No model was saved, and checkpoints within this epoch may have the same fault."
    )
