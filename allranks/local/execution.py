"""One step on its way: the key that it is known by, its files, its attempts."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from allranks.local import cache, fingerprint, machine, snapshot
from allranks.local.aborts import AGAIN, was_aborted_at_exit
from allranks.local.assets import register
from allranks.local.cache import Cache, Finished, Workplace
from allranks.local.folders import Home, RunFolder, StepFolder, write_json
from allranks.local.gang import Gang, RankCommand
from allranks.local.guard import Guard
from allranks.local.launch import LAUNCHERS, LaunchContext, first_exit, lost_ranks
from allranks.local.overlay import add_commands, is_script, make_overlay, seems_to_install
from allranks.local.plan import AZURE_PORT, PlannedStep, StepOutput
from allranks.local.result import (
    CANCELLED,
    FAILED,
    RETRYING,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    Failure,
    StepResult,
    last_lines,
    read_progress,
)
from allranks.local.stores import Stores
from allranks.local.traces import point_at_sources
from allranks.local.variables import Cluster, inherited, of_data, of_job
from allranks.redaction import redact_document

KEY_FORMAT = 1  # raised when a change of the engine makes the outputs of older versions unusable


@dataclass(frozen=True, slots=True)
class Job:
    """What the steps of one run have in common; ``umask`` is that of their processes, and not the engine's."""

    home: Home
    run: RunFolder
    experiment: str
    python: Path
    environ: Mapping[str, str]
    began: float
    stores: Stores
    umask: int = 0o022


class Execution:
    """The state of one step during a run; the engine decides, this object does.

    Attributes:
        finished: the execution whose outputs stand for this step's, once there is one.
        gang: the ranks of the running attempt.
        files, snapshot_hash: its snapshot; taken from ``like``, an execution of the same component, if that is given.
        aborts_at_exit: attempts that were repeated because Python's end had killed a rank; see ``aborts.py``.
        due: when the attempt's time is up, or when the next attempt may start (monotonic seconds).
    """

    limit = "limits.timeout"  # what the time-out of an attempt is called

    def __init__(self, step: PlannedStep, job: Job, like: Execution | None = None) -> None:
        self.step = step
        self.job = job
        self.folder = job.run.step(step.name)
        self.status = WAITING
        self.attempts = 0
        self.aborts_at_exit = 0
        self.finished: Finished | None = None
        self.failure: Failure | None = None
        self.gang: Gang | None = None
        self.workplace: Workplace | None = None
        self.due: float | None = None
        self.key = ""
        self.command = ""
        self.files: list[snapshot.SnapshotFile] = snapshot.files(step.component) if like is None else like.files
        self.snapshot_hash: str = snapshot.content_hash(self.files) if like is None else like.snapshot_hash
        self._inputs: dict[Path, list[list[str | int]]] = {}
        self._started: float | None = None
        self._ended: float | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in {SUCCEEDED, FAILED, SKIPPED, CANCELLED}

    @property
    def reused(self) -> bool:
        """Whether its outputs come from an earlier run, or from an equal step of this one."""
        return self.finished is not None and self.attempts == 0

    @property
    def reused_from(self) -> str | None:
        """The run whose outputs it took, or None."""
        return self.finished.run_id if self.finished is not None and self.reused else None

    @property
    def seconds(self) -> float:
        """How long it has taken so far; 0 before it starts."""
        return 0.0 if self._started is None else (self._ended or time.monotonic()) - self._started

    @property
    def marker(self) -> str:
        """What every process of this step has in its environment, and no other process."""
        return f"AZUREML_RUN_ID={self.job.run.id}.{self.step.name}"

    def identify(self, upstream: Mapping[str, Finished]) -> str:
        """The key: equal for two executions that must give the same outputs.

        Args:
            upstream: the executions that the inputs come from, by step.
        """
        step = self.step
        inputs: dict[str, object] = {}
        for name, value in step.inputs.items():
            if isinstance(value, StepOutput):
                inputs[name] = [upstream[value.step].execution, value.port]
            else:
                inputs[name] = [str(value), fingerprint.tree(value)] if isinstance(value, Path) else value
        return fingerprint.digest(
            {
                "format": KEY_FORMAT,
                "snapshot": self.snapshot_hash,
                "command": step.component.command,
                "inputs": inputs,
                "outputs": {name: [output.type, output.mode] for name, output in step.outputs.items()},
                "environment": str(step.component.environment),
                "interpreter": fingerprint.interpreter(self.python),
                "environment_variables": dict(step.environment_variables),
                "distribution": [step.distribution, step.nodes, step.processes, step.parameter_servers],
            }
        )

    def reuse(self, records: Cache, finished: Finished) -> None:
        """Take the outputs and logs of a finished execution."""
        source = records.folder(finished)
        self.folder.path.mkdir(parents=True, exist_ok=True)
        for mine, theirs in ((self.folder.outputs, source.outputs), (self.folder.logs, source.logs)):
            cache.link(mine, theirs)
        self.finished = finished
        self.register_outputs(source)  # an engine may have been killed before it could
        self.end(SUCCEEDED)

    def start(self, data: Mapping[str, Path], ports: machine.Ports, guard: Guard) -> None:
        """Start an attempt: fresh working folders, the outputs of earlier attempts that survive, all ranks."""
        assert self.workplace is not None  # noqa: S101 the engine acquires it first
        self.attempts += 1
        if self._started is None:
            self._started = time.monotonic()
        # Only what is mounted survives on Azure ML; elsewhere a half-written file could be taken for a whole one.
        self.workplace.prepare([name for name, output in self.step.outputs.items() if output.mode == "rw_mount"])
        self._lay_out()
        processes = self.step.nodes * self.step.launched + self.step.parameter_servers
        cluster = self.cluster(ports.row(1 + processes) if self.step.distribution else AZURE_PORT)
        self._inputs = {path: fingerprint.tree(path) for path in data.values()}
        ranks = self.ranks({name: str(path) for name, path in data.items()}, self.places(), cluster)
        self.gang = Gang(ranks, guard, self.marker, self.job.umask)
        self.due = None if self.step.timeout is None else time.monotonic() + self.step.timeout

    def _lay_out(self) -> None:
        """Give every node its own copy of the snapshot, and a temporary folder.

        Raises:
            OSError: the snapshot is no longer what was planned: whoever can write there could have anything executed.
        """
        kept = [replace(file, source=self.folder.snapshot / file.path, members=None) for file in self.files]
        if snapshot.content_hash(kept) != self.snapshot_hash:
            raise OSError(f"the files in {self.folder.snapshot} are not those that were planned")
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        for node in range(self.step.nodes):
            cache.remove(self.folder.work(node).parent)
            shutil.copytree(self.folder.snapshot, self.folder.work(node))
            self.folder.tmp(node).mkdir()
        for overlay in dict.fromkeys(self.overlays):
            if not overlay.exists() and (self.installs or not is_script(self.python)):
                make_overlay(overlay, self.python)
                if self.installs:
                    add_commands(overlay, self.python, self.job.environ.get("PATH", ""))

    def places(self) -> dict[str, str]:
        """Where each output is written; folders are made, files are the script's to make."""
        assert self.workplace is not None  # noqa: S101
        places = {}
        for name, output in self.step.outputs.items():
            place = self.workplace.outputs / name
            if output.type != "uri_file":
                place.mkdir(exist_ok=True)
            places[name] = str(place)
        return places

    def cluster(self, port: int) -> Cluster:
        """The emulated nodes, with their share of the machine."""
        step = self.step
        threads = max(1, machine.cores() // step.ranks)
        devices = machine.gpu_shares(step.nodes, step.processes)
        return Cluster(step.nodes, step.launched, port, threads, devices, step.parameter_servers)

    def ranks(self, data: Mapping[str, str], outputs: Mapping[str, str], cluster: Cluster) -> list[RankCommand]:
        """The command and variables of every process."""
        step, job = self.step, self.job
        self.command = step.command(data, outputs)
        store = f"sqlite:///{job.stores.path(self.python)}"
        shared = {
            **inherited(job.environ, self.python),
            **of_job(job.run.id, step.name, job.experiment, store, max(1, self.attempts)),
            **of_data(step.literals, data, outputs),
            **self.variables,
        }
        overrides = step.environment_variables
        context = LaunchContext(
            self.folder, cluster, self.command, shared, overrides, self.overlays, installs=self.installs
        )
        return LAUNCHERS[step.distribution](context)

    @cached_property
    def installs(self) -> bool:
        """Whether it seems to install packages: then each node has an interpreter of its own to change."""
        return seems_to_install(" ".join([self.step.component.command, *self.step.literals.values()]), self.files)

    @property
    def overlays(self) -> list[Path]:
        """For each node where what it installs goes."""
        shared = self.job.run.installed(fingerprint.digest(str(self.python))[:12])
        return [self.folder.overlay(node) if self.installs else shared for node in range(self.step.nodes)]

    @property
    def store_ready(self) -> bool:
        """Whether it can log to MLflow, or is nothing that would; False while the database is being made."""
        logs = bool(self.files) or re.search("python|mlflow", self.step.component.command) is not None
        return not logs or self.job.stores.ready(self.python)

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return self.step.python or self.job.python

    @property
    def variables(self) -> Mapping[str, str]:
        """What this kind of execution adds to the variables of every process."""
        return {}

    def publish(self, records: Cache) -> None:
        """Make the outputs the run's: the record first, the rename last, so that a kill in between loses nothing."""
        assert self.workplace is not None  # noqa: S101
        self.finished = Finished(self.job.run.id, self.step.name, f"{self.job.run.id}/{self.step.name}")
        if self.step.component.is_deterministic:
            records.remember(self.key, self.finished, self.workplace.outputs, self.step.outputs)
        self.workplace.publish(self.folder)
        self.register_outputs(self.folder)
        self.end(SUCCEEDED)

    def register_outputs(self, source: StepFolder) -> None:
        """Keep the outputs that have a name as assets; they lie in the folder of the step that wrote them."""
        for name, output in self.step.outputs.items():
            if output.asset_name:
                place = source.outputs / name
                register(self.job.home, output.asset_name, output.asset_version, place, output.type)

    def broken_promise(self, gang: Gang) -> str:
        """What a step that ended well did all the same: a rank or an output is missing, an input is not as it was."""
        assert self.workplace is not None  # noqa: S101
        if lost := lost_ranks(self.folder, gang):
            return lost
        missing = [name for name in self.step.outputs if not (self.workplace.outputs / name).exists()]
        if missing:
            return f"succeeded but did not write its output {', '.join(missing)}"
        changed = [str(path) for path, before in self._inputs.items() if fingerprint.tree(path) != before]
        if changed:
            return f"wrote to its input {', '.join(changed)}, which is read-only on Azure ML"
        return ""

    def may_retry(self, retries: int, gang: Gang, *, timed_out: bool) -> bool:
        """Whether another attempt is due: one of ``retries``, or because Python's end has killed a rank."""
        if not timed_out and was_aborted_at_exit(first_exit(self.folder, gang), gang) and self.aborts_at_exit < AGAIN:
            self.aborts_at_exit += 1
            return True
        return self.attempts - self.aborts_at_exit <= retries

    def keep_logs(self) -> None:
        """Put the logs of a failed attempt aside, since the next one writes under the same names."""
        kept = self.folder.attempt_logs(self.attempts)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.folder.logs, kept)

    def end(self, status: str, failure: Failure | None = None) -> None:
        """Nothing more will happen to this step."""
        self.status, self.failure, self.gang, self.due = status, failure, None, None
        self._ended = time.monotonic()
        for overlay in self.overlays if self.installs else ():
            shutil.rmtree(overlay, ignore_errors=True)
        if self.workplace is not None:
            self.workplace.release()

    def explain(self, gang: Gang, *, timed_out: bool) -> Failure:
        """The first failure of a gang, with the end of the log of the rank that failed first."""
        exit_ = first_exit(self.folder, gang)
        if exit_ is None:
            return Failure("stopped")
        command = exit_.command
        who = "the command" if command.rank is None else f"rank {command.rank} on node {command.node}"
        message = f"{who} {exit_.reason}"
        if was_aborted_at_exit(exit_, gang):
            message += " while Python ended, when its own work seems to have been done (see docs/local-engine.md)"
        if timed_out:
            message = f"not finished after {self.limit} = {self.step.timeout:g} s"
        quoted = point_at_sources(last_lines(command.log), self.folder, self.files)
        return Failure(message, command.rank, command.node, command.log, quoted)

    def keep(self) -> StepResult:
        """Write step.json."""
        result = self.result()
        self.folder.path.mkdir(parents=True, exist_ok=True)
        inputs = {name: str(value) for name, value in self.step.inputs.items()}
        document = {**result.document(), "command": self.command, "inputs": inputs, "key": self.key}
        write_json(self.folder.state, redact_document(document))
        return result

    def result(self) -> StepResult:
        """What became of it so far."""
        started = None if self._started is None else self._started - self.job.began
        outputs = {name: self.folder.outputs / name for name in self.step.outputs} if self.finished else {}
        source = self.job.home.run(self.finished.run_id).step(self.finished.step) if self.finished else self.folder
        return StepResult(
            name=self.step.name,
            status=self.status,
            started=started,
            seconds=self.seconds,
            reused_from=self.reused_from,
            attempts=self.attempts,
            aborts_at_exit=self.aborts_at_exit,
            nodes=self.step.nodes,
            processes=self.step.processes,
            folder=self.folder.path,
            outputs=outputs,
            metrics=read_progress(source.metrics()).metrics,
            failure=self.failure,
            component=self.step.component.name,
            after=self.step.after,
        )


def take_snapshots(executions: Iterable[Execution], run: RunFolder) -> None:
    """Copy the files of all steps when the run begins: whoever edits them meanwhile edits the next run.

    When that fails nothing has begun yet, and nothing is left of the run.
    """
    try:
        for execution in executions:
            execution.folder.path.mkdir(parents=True)
            snapshot.build(execution.files, execution.folder.snapshot)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def abandon(executions: Iterable[Execution], why: str) -> None:
    """End what is not over: what was running has failed for this reason. The disk may refuse to keep it."""
    for execution in executions:
        if execution.status in (RUNNING, RETRYING):
            execution.end(FAILED, Failure(why))
        elif not execution.over:
            execution.end(CANCELLED)
        with suppress(OSError):
            execution.keep()
