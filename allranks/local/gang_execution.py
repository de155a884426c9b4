"""A step that runs as ranks: its attempts, each a gang in fresh working folders, and how each of them ended."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from allranks.errors import AllranksError
from allranks.local import cache, fingerprint, machine
from allranks.local.aborts import ABORT_REPEATS, was_aborted_at_exit
from allranks.local.attempts import attempt_of, data_sizes, shown_variables
from allranks.local.bytecode import add_bytecode
from allranks.local.cache import FinishedStep, StepCache
from allranks.local.downloads import copy_inputs, unchanged_inputs
from allranks.local.execution import StepExecution
from allranks.local.failure_cause import FailureCause
from allranks.local.gang import RankGang
from allranks.local.gang_failure import FailedAttempt
from allranks.local.goodput import read_attempt_steps
from allranks.local.guard import ProcessGuard
from allranks.local.launch import LAUNCHERS, LaunchContext
from allranks.local.launch.launcher import RankLauncher
from allranks.local.node_folders import ARTIFACTS, fill_artifacts, keep_logs, lay_out_nodes, make_places
from allranks.local.overlay import add_commands, is_script, make_overlay, seems_to_install
from allranks.local.plain_paths import plain_path
from allranks.local.plan import AZURE_PORT, PlannedStep, StepOutput
from allranks.local.read_only import lockable_inputs
from allranks.local.resources.memory_kills import KillCounter
from allranks.local.restarts import RestartBudget
from allranks.local.result import FAILED, RETRYING, RUNNING, SUCCEEDED, StepFailure, last_lines
from allranks.local.run_context import RunContext
from allranks.local.traces import point_at_sources
from allranks.local.tracking.jobs import job_run_id
from allranks.local.variables import (
    EmulatedCluster,
    data_variables,
    job_variables,
    proxy_exceptions,
)

PORT_REPEATS = 2
"""Attempts of a step that are repeated with other ports, in addition to those of `--retries`."""


class GangExecution(StepExecution):
    """The state of a step that runs as ranks."""

    limit = "limits.timeout"  # what the time-out of an attempt is called
    timeout_status = FAILED  # what has become of a step whose time was up

    def __init__(self, step: PlannedStep, context: RunContext, parent: StepExecution | None = None) -> None:
        super().__init__(step, context, parent)
        self._launcher = LAUNCHERS[step.distribution]
        self._cluster = self._emulate(AZURE_PORT)
        self._ports: machine.PortRow | None = None  # those of the attempt that runs
        self._temporary: Path | None = None  # the folder of its temporary files
        self._inputs: dict[Path, list[list[str | int]]] = {}
        self._kills_before: int | None = None  # when the attempt began
        self._budget = RestartBudget()
        self._port_repeats = 0  # attempts that were repeated because a port was in use

    # An attempt's start

    def begin(self, data: Mapping[str, Path], guard: ProcessGuard, *, fresh: bool) -> StepFailure | None:  # noqa: ARG002
        """Start an attempt: fresh working folders, the outputs of earlier attempts that survive, all ranks."""
        missing = [f"{name} ({path})" for name, path in data.items() if not path.exists()]
        if missing:
            return StepFailure(f"its input is not there: {', '.join(missing)}")
        try:
            self._start(data, guard)
        except (OSError, AllranksError, ValueError) as error:  # ValueError: what no command line and no variable can be
            return StepFailure(f"could not be started: {error} {getattr(error, 'hint', '')}".rstrip())
        self.status = RUNNING
        return None

    def _start(self, data: Mapping[str, Path], guard: ProcessGuard) -> None:
        assert self.workplace is not None  # noqa: S101 the engine acquires it first
        self.context.tracking.begin_step(self.step.name, self.parent.step.name if self.parent else "")
        self.attempts += 1
        if self._started is None:
            self._started = time.monotonic()
        self.workplace.prepare(self.step.kept_outputs)
        self._budget.begin_attempt([self.workplace.outputs / name for name in self.step.kept_outputs])
        self._temporary = self.context.temporary.new_attempt(self.step.nodes)
        before = self.folder_before if self.context.request.keep_checkpoints and self.context.request.script else None
        lay_out_nodes(self.folder, self.files, self.snapshot_hash, self.step.nodes, before)
        if self.python == Path(sys.executable) and self.step.host.is_this_machine:
            works = [self.folder.work(node) for node in range(self.step.nodes)]
            add_bytecode(self.files, works, self.context.run.home.bytecode)
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        self._make_overlays()
        if self.step.distribution:
            servers = self.step.nodes + self.step.parameter_servers if self.step.distribution == "tensorflow" else 1
            self._ports = self.context.ports.row(1 + servers)
            self._cluster = self._emulate(self._ports.first)
        self._inputs = unchanged_inputs(data.values(), self.identified, self._inputs)
        self.data_sizes = data_sizes(self.step.paths, self._inputs)
        cache.remove_path(self.folder.downloads)
        copies = copy_inputs(data, self.step.downloaded, self._inputs, self.folder.downloads)
        data = {**data, **copies}
        inputs = {name: self._shown_path(path) for name, path in data.items()}
        places = make_places(self.workplace.outputs, self.step.outputs)
        outputs = {name: self._shown_path(path) for name, path in places.items()}
        context = self._launch_context(inputs, outputs)
        # Of this attempt's control plane: other users of the machine can read the run's id.
        token = {"ALLRANKS_JOB_TOKEN": secrets.token_hex(16)}
        context = replace(context, shared={**context.shared, **token})
        writes = (self.workplace.outputs, *copies.values())
        context = replace(context, reads=tuple(data.values()), writes=writes, temporary=self._temporary)
        inherited = self.step.host.inherited(self.context.environ, self.python)
        mounted = [path for name, path in data.items() if name not in copies and self.step.host.is_this_machine]
        locked = lockable_inputs(mounted, (self.context.run.path, self.workplace.outputs))
        self._hosted.write_files(context)
        marker = f"AZUREML_RUN_ID={job_run_id(self.context.run.id, self.step.name)}"
        commands = self._hosted.commands(context)
        self.shown_variables = shown_variables(commands[0].environ, inherited)
        self._kills_before = self._kill_counter.mark()
        end, spare = self.step.host.end, self.step.spare_nodes
        self.due = None if self.step.timeout is None else time.monotonic() + self.step.timeout
        self.gang = RankGang(commands, guard, marker, self.context.umask, end, locked, spare)

    def _make_overlays(self) -> None:
        """Make the places where its commands may install packages, as far as they are not there."""
        for overlay in dict.fromkeys(self._overlays):
            if not overlay.exists() and (self._installs or not is_script(self.python)):
                make_overlay(overlay, self.python)
                if self._installs:
                    add_commands(overlay, self.python, self.context.environ.get("PATH", ""))

    def _shown_path(self, path: object) -> str:
        """A path of data as its command has it: containers have the data under plain paths of their own."""
        return plain_path(str(path)) if self.step.host.is_this_machine else str(path)

    def _emulate(self, port: int) -> EmulatedCluster:
        """The emulated nodes, with their share of the machine."""
        step = self.step
        threads = max(1, machine.usable_cores() // step.ranks)
        devices = machine.gpu_shares(step.nodes, step.processes)
        return EmulatedCluster(step.nodes, step.launched, port, threads, devices, step.parameter_servers)

    def _launch_context(self, data: Mapping[str, str], outputs: Mapping[str, str]) -> LaunchContext:
        """The command, and the variables that all processes have in common."""
        step, run = self.step, self.context
        self.command = step.command(data, outputs)
        shared = {
            **step.host.inherited(run.environ, self.python),
            **job_variables(run.run.id, run.experiment, max(1, self.attempts)),
            **run.tracking.variables(step.name, run.environ),
            **data_variables(step.literals, data, outputs),
            **self.variables,
        }
        shared |= proxy_exceptions(shared, ("localhost", *self._cluster.addresses))
        own = step.environment_variables
        return LaunchContext(
            self.folder, self._cluster, self.command, shared, own, self._overlays, self._installs, umask=run.umask
        )

    @property
    def _hosted(self) -> RankLauncher:
        """How its ranks are started where they run."""
        return self.step.host.launcher(self._launcher)

    @cached_property
    def _installs(self) -> bool:
        """Whether it seems to install packages: then each node has an interpreter of its own to change."""
        if not self.step.host.is_this_machine:
            return False
        return seems_to_install(
            " ".join([self.step.component.command, *self.step.literals.values()]), self.readable_files
        )

    @property
    def _overlays(self) -> list[Path]:
        """For each node where what it installs goes; none where that is gone with the node."""
        if not self.step.host.is_this_machine:
            return []
        shared = self.context.run.installed(fingerprint.json_digest(str(self.python))[:12])
        return [self.folder.overlay(node) if self._installs else shared for node in range(self.step.nodes)]

    @property
    def variables(self) -> Mapping[str, str]:
        """What this kind of execution adds to the variables of every process."""
        return {}

    # An attempt's end

    def conclude(self, records: StepCache, retries: int | None) -> None:
        """See ``StepExecution``."""
        gang = self.gang
        assert gang is not None and self.workplace is not None  # noqa: S101, PT018 it has just ended
        succeeded = gang.first_failure is None and not gang.timed_out
        if succeeded and ARTIFACTS in self.step.outputs:
            fill_artifacts(self.folder.work(0), self.workplace.outputs / ARTIFACTS)
        failure = self.broken_promise(gang) if succeeded else self._explain(gang)
        if failure is None:
            self._publish(records)
            return
        self._budget.end_attempt()
        if self.may_retry(retries, gang, failure):
            self._note_attempt(FAILED, failure)
            keep_logs(self.folder, self.attempts)
            self.status, self.gang, self.failure = RETRYING, None, failure
            self.due = time.monotonic() + self._budget.pause
        else:
            self.end(self.timeout_status if gang.timed_out else FAILED, failure)

    def _publish(self, records: StepCache) -> None:
        """Make the outputs the run's: the record first, the rename last, so that a kill in between loses nothing."""
        assert self.workplace is not None  # noqa: S101
        run_id = self.context.run.id
        self.source = FinishedStep(run_id, self.step.name, f"{run_id}/{self.step.name}")
        self.workplace.loosen_links()
        self.remember(records, self.workplace.outputs)
        self.workplace.publish(self.folder)
        self.register_outputs(self.folder)
        self.end(SUCCEEDED)

    def broken_promise(self, gang: RankGang) -> StepFailure | None:
        """What a step that ended well did all the same: a rank or an output is missing, an input is not as it was."""
        assert self.workplace is not None  # noqa: S101
        if lost := self._hosted.lost_ranks(self.folder, self._cluster, gang):
            return StepFailure(lost, cause=FailureCause.LOST_NODE)
        missing = [name for name in self.step.outputs if not (self.workplace.outputs / name).exists()]
        if missing:
            return StepFailure(
                f"succeeded but did not write its output {', '.join(missing)}", cause=FailureCause.CODE_ERROR
            )
        wrote = self._written_inputs()
        return StepFailure(wrote, cause=FailureCause.CODE_ERROR) if wrote else None

    def _written_inputs(self) -> str:
        """Which inputs are not as they were when the attempt began; empty if all are."""
        changed = [str(path) for path, before in self._inputs.items() if fingerprint.tree_fingerprint(path) != before]
        rule = "which is read-only on Azure ML but for downloads"
        return f"wrote to its input {', '.join(changed)}, {rule}" if changed else ""

    def may_retry(self, retries: int | None, gang: RankGang, failure: StepFailure) -> bool:
        """Whether another attempt is due: one of ``retries``, or because Python's end has killed a rank."""
        self.comes_back = True
        first = self._hosted.first_exit(self.folder, self._cluster, gang)
        if not gang.timed_out and was_aborted_at_exit(first, gang) and self.aborts_at_exit < ABORT_REPEATS:
            self.aborts_at_exit += 1
            return True
        if failure.cause == FailureCause.PORT_IN_USE and self._port_repeats < PORT_REPEATS:
            self._port_repeats += 1
            return True
        counted = self.attempts - self.aborts_at_exit - self._port_repeats
        self.comes_back = self._budget.allows(failure.cause, counted)
        return self.comes_back if retries is None else counted <= retries

    def _note_attempt(self, status: str, failure: StepFailure | None) -> None:
        """Record the attempt that has ended, if there is one. Release its ports and remove its temporary folder."""
        if self._ports is not None:
            self._ports.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        if self.gang is not None:
            steps = read_attempt_steps(self.folder, time.time() - (time.monotonic() - self.gang.started))
            self.past_attempts.append(attempt_of(self.gang, self.context.began, status, failure, steps))

    def end(self, status: str, failure: StepFailure | None = None) -> None:
        """Nothing more will happen to this step."""
        self._note_attempt(status, failure)
        super().end(status, failure)
        shutil.rmtree(self.folder.downloads, ignore_errors=True)
        for overlay in self._overlays if self._installs else ():
            shutil.rmtree(overlay, ignore_errors=True)

    def why_stopped(self, reason: str) -> StepFailure:
        """With what its first rank printed last."""
        if self.gang is None:
            return super().why_stopped(reason)
        first = self.gang.commands[0]
        quoted = point_at_sources(last_lines(first.log), self.folder, self.files)
        return StepFailure(reason, first.rank, first.node, first.log, quoted)

    def _explain(self, gang: RankGang) -> StepFailure:
        """The first failure of a gang."""
        first = self._hosted.first_exit(self.folder, self._cluster, gang) or next(iter(gang.exits), None)
        if first is None:
            return StepFailure("stopped")
        time_out = f"not finished after {self.limit} = {self.step.timeout:g} s" if gang.timed_out else ""
        lacked = self._kill_counter.explain(self._kills_before)
        alone = tuple(self._hosted.failed_exits(self.folder, self._cluster, gang)) or gang.ended_alone
        failed = FailedAttempt(
            self.step, self.folder, self.files, self.python, tuple(self._inputs), self.attempts, time_out, lacked, alone
        )
        failure = failed.explain(first, gang)
        return replace(failure, message="; ".join(filter(None, (failure.message, self._written_inputs()))))

    @property
    def _kill_counter(self) -> KillCounter:
        """Counts kills where its ranks run: in containers they are in other control groups than the engine."""
        return self.context.own_kills if self.step.host.is_this_machine else self.context.machine_kills

    # A dry run

    def preview(self, published: Mapping[str, Path], finished: FinishedStep | None) -> dict[str, Any]:
        """See ``StepExecution``; a path that is only known when it runs is ``<step.port>``."""
        step = self.step

        def place(output: StepOutput) -> str:
            return str(published[output.step] / output.port) if output.step in published else str(output)

        shown = {name: self._shown_path(where) for name, where in step.place_data(place).items()}
        outputs = {name: f"<{step.name}.{name}>" for name in step.outputs}
        first = self._launcher.commands(self._launch_context(shown, outputs))[0]
        own = step.host.inherited(self.context.environ, self.python)
        return {
            "status": "planned",
            "component": step.component.name,
            "command": self.command,
            "inputs": {**step.literals, **shown},
            "input_sources": step.source_documents,
            "outputs": outputs,
            "distribution": step.distribution,
            "nodes": step.nodes,
            "processes": step.processes,
            "timeout": step.timeout,
            "after": list(step.after),
            **({"when": dict(step.chosen_by)} if step.chosen_by else {}),
            "snapshot": self.snapshot_hash,
            "files": [file.path for file in self.files],
            "reused": finished is not None,
            "reused_from": finished.run_id if finished else None,
            "variables": shown_variables(first.environ, own),
        }
