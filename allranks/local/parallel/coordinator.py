"""The process of a parallel step that divides its input, gives mini batches to workers and collects the results.

It is the one process that the engine starts, and starts the workers itself, so that the death of one of them is not
the step's. Results stand in the order of the mini batches, whoever was faster. It is killed with the engine, and its
workers with it: the next start of the step begins with all mini batches.
"""

from __future__ import annotations

import json
import selectors
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.errors import CannotRunHereError
from allranks.local.parallel.batches import MiniBatch, divide_input
from allranks.local.parallel.crew import Worker, WorkerPlace
from allranks.local.parallel.plan import BatchRules
from allranks.local.parallel.tally import BatchTally

_LOOK_SECONDS = 0.2  # between two looks at the deadlines
_SHUTDOWN_SECONDS = 60.0  # that the workers' shutdown() gets


class StepFailedError(Exception):
    """The step has failed, for this reason."""


class BatchCoordinator:
    """Gives out the mini batches until each is done or has failed for good.

    Args:
        rules: of the step.
        batches: all mini batches.
        folder: for results of single mini batches.
        places: where workers may run; no more are started than there are mini batches.
        program: the worker's, with ``settings`` for it.
        clock: returns the seconds by which calls take too long.
    """

    def __init__(
        self,
        rules: BatchRules,
        batches: list[MiniBatch],
        folder: Path,
        places: list[WorkerPlace],
        program: Path,
        settings: dict[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.tally = BatchTally(rules, len(batches))
        self.results: dict[int, tuple[Path, bool]] = {}  # whether the first line is a header
        self._rules, self._batches, self._folder = rules, batches, folder
        self._places, self._program, self._settings = places[: len(batches)], program, settings
        self._waiting = deque(range(len(batches)))
        self._tries = [0] * len(batches)
        self._items = [len(batch) for batch in batches]
        self._workers: dict[int, Worker] = {}
        self._early_deaths = 0
        self._selector = selectors.DefaultSelector()
        self._metrics = Path("outputs", "metrics.jsonl")

    def run(self) -> None:
        """Work until the last mini batch.

        Raises:
            StepFailedError: too many have failed, or no worker can start.
        """
        self._metrics.parent.mkdir(exist_ok=True)
        self._progress()
        for place in self._places:
            self._start(place)
        while self.tally.done < self.tally.total:
            for key, _ in self._selector.select(_LOOK_SECONDS):
                worker = self._workers.get(key.data)
                if worker is not None and key.fd in (worker.pidfd, worker.answers):
                    self._listen(worker, has_died=key.fd == worker.pidfd)
            now = self._clock()
            for worker in list(self._workers.values()):
                if worker.deadline < now and (worker.batch is not None or not worker.is_ready):
                    self._time_out(worker)
        self._check(self.tally.final_fault)

    def _check(self, fault: str) -> None:
        if fault:
            raise StepFailedError("; ".join(filter(None, [fault, self.tally.slowness])))

    def close(self) -> None:
        """Let the workers shut down; those that do not are killed."""
        for worker in self._workers.values():
            worker.tell(stop=True)
            self._selector.unregister(worker.answers)
        give_up = time.monotonic() + (_SHUTDOWN_SECONDS if self.tally.done == self.tally.total else 0)
        left = {worker.pidfd for worker in self._workers.values()}
        while left and time.monotonic() < give_up:
            left -= {key.fd for key, _ in self._selector.select(_LOOK_SECONDS)}
        for worker in self._workers.values():
            code = worker.reap()
            if code and worker.pidfd not in left:
                _say(f"worker {worker.place.number} ended with exit code {code} after its last mini batch")

    def _start(self, place: WorkerPlace) -> None:
        worker = Worker(place, self._program, self._settings, self._rules.first_task_timeout, self._clock)
        self._workers[place.number] = worker
        self._selector.register(worker.answers, selectors.EVENT_READ, place.number)
        self._selector.register(worker.pidfd, selectors.EVENT_READ, place.number)

    def _listen(self, worker: Worker, *, has_died: bool) -> None:
        """Act on what a worker has answered, and on its end."""
        for answer in worker.heard():
            self._hear(worker, answer)
        if has_died:
            code = self._end(worker)
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self._lose(worker, f"worker {worker.place.number} {how}")
        elif worker.is_ready and worker.batch is None:
            self._give(worker)

    def _hear(self, worker: Worker, answer: dict[str, Any]) -> None:
        what, index = answer["what"], worker.batch
        if what == "init_failed":
            raise StepFailedError(
                f"init() of the entry script failed on worker {worker.place.number}:\n{answer['error']}"
            )
        if what == "ready":
            worker.is_ready, self._early_deaths = True, 0
        elif index is not None and what == "started":
            seconds, worker.is_running = self._rules.run_timeout, True
            worker.expect(seconds, f"run() has not returned after retry_settings.timeout = {seconds:g} s")
        elif index is not None:
            worker.batch = None
            self._finish(index, answer)

    def _finish(self, index: int, answer: dict[str, Any]) -> None:
        """A call of run() has ended, well or not."""
        if answer["what"] == "failed":
            self._fail(index, answer["error"])
            return
        items, returned = self._items[index], answer["returned"]
        self.results[index] = self._result_file(index), answer["headed"]
        short = self.tally.is_short(items, returned)
        if short and self._tries[index] < self._rules.max_retries:
            self._fail(index, f"run() returned {returned} of {items} items")
            return
        if short:
            _say(f"mini batch {index} has failed: run() returned {returned} of {items} items")
        self._settle(index, returned, failed=short)

    def _fail(self, index: int, why: str) -> None:
        """A mini batch is tried again, or has failed for good."""
        self.results.pop(index, None)
        self._tries[index] += 1
        left = self._rules.max_retries + 1 - self._tries[index]
        _say(f"mini batch {index}, try {self._tries[index]}, {'is tried again' if left else 'has failed'}: {why}")
        if left:
            self.tally.retries += 1
            self._progress()
            self._waiting.append(index)
            self._wake()
        else:
            self._settle(index, 0, failed=True)

    def _settle(self, index: int, returned: int, *, failed: bool) -> None:
        self.tally.note(self._items[index], returned, failed=failed)
        self._progress()
        self._check(self.tally.fault)  # here: it would be chance how many more fail or start where one looked later

    def _give(self, worker: Worker) -> None:
        """Give a worker the next mini batch, if one waits."""
        if not self._waiting:
            return
        index, worker.is_running = self._waiting.popleft(), False
        worker.batch = index
        seconds = self._rules.overhead_timeout
        worker.expect(seconds, f"a mini batch was not loaded after task_overhead_timeout = {seconds:g} s")
        worker.tell(index=index, batch=self._batches[index], results=str(self._result_file(index)))

    def _wake(self) -> None:
        """Give work to a worker that has none."""
        idle = (one for one in self._workers.values() if one.is_ready and one.batch is None)
        if (worker := next(idle, None)) is not None:
            self._give(worker)

    def _time_out(self, worker: Worker) -> None:
        self.tally.timeouts += worker.is_running
        worker.ask_for_stack()
        self._end(worker)
        self._lose(worker, worker.limit)

    def _end(self, worker: Worker) -> int:
        del self._workers[worker.place.number]
        self._selector.unregister(worker.answers)
        self._selector.unregister(worker.pidfd)
        return worker.reap()

    def _lose(self, worker: Worker, why: str) -> None:
        """A worker is gone: what it was doing has failed, and another one takes its place."""
        if not worker.is_ready:
            self._early_deaths += 1
            if self._early_deaths > self._rules.max_retries:
                raise StepFailedError(f"{why}, before init() had returned, {self._early_deaths} times in a row")
        if worker.batch is not None:
            self._fail(worker.batch, why)
        if self.tally.done < self.tally.total:
            self._start(worker.place)

    def _result_file(self, index: int) -> Path:
        return self._folder / f"{index}.txt"

    def _progress(self) -> None:
        line = {"step": self.tally.done, "total": self.tally.total, "metrics": self.tally.metrics}
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def run_order(order: dict[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
    """Carry out a parallel step; see ``execution.py`` for the order.

    Raises:
        StepFailedError: it has failed.
    """
    rules = BatchRules(**order["rules"])
    try:
        batches = divide_input(Path(order["input"]), rules.input_type, rules.size)
    except (CannotRunHereError, OSError) as error:
        raise StepFailedError(str(error)) from error
    folder = Path(order["folder"])
    shutil.rmtree(folder / "results", ignore_errors=True)
    (folder / "results").mkdir()
    places = [
        WorkerPlace(one["number"], Path(one["cwd"]), one["variables"], Path(one["log"])) for one in order["workers"]
    ]
    _say(f"{len(batches)} mini batches for {len(places[: len(batches)])} workers")
    program = Path(order["program"])
    coordinator = BatchCoordinator(rules, batches, folder / "results", places, program, order["worker"], clock)
    try:
        coordinator.run()
    finally:
        coordinator.close()
    if order["append_to"]:
        collect_results(coordinator.results, Path(order["append_to"]))
    counts = ", ".join(f"{name} {value}" for name, value in coordinator.tally.metrics.items())
    _say(f"finished: {counts}")


def collect_results(results: dict[int, tuple[Path, bool]], target: Path) -> None:
    """Write the results of all mini batches into one file, in their order; of headers only the first."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as joined:
        for number, (_, (file, headed)) in enumerate(sorted(results.items())):
            with file.open("rb") as part:
                if headed and number:
                    part.readline()
                shutil.copyfileobj(part, joined)


def _say(text: str) -> None:
    print(text.rstrip(), flush=True)


def main() -> None:
    """Run the order in the file that is named."""
    try:
        run_order(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except StepFailedError as error:
        _say(f"failed: {error}")
        raise SystemExit(1) from None
