"""A parallel step on its way: to the engine one process, the coordinator, which starts the workers itself."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.child_process import child_command
from allranks.errors import UsageError
from allranks.local.cache import FinishedStep
from allranks.local.folders import write_json_file
from allranks.local.gang_execution import GangExecution
from allranks.local.launch import LaunchContext
from allranks.local.launch.launcher import RankLauncher
from allranks.local.parallel.plan import PlannedParallel
from allranks.local.plan import PlannedStep
from allranks.local.rank_command import RankCommand
from allranks.local.run_context import RunContext

_WORKER = Path(__file__).with_name("worker.py")
_START = "from allranks.local.parallel.coordinator import main; main()"


class ParallelExecution(GangExecution):
    """The state of a parallel step."""

    def __init__(self, step: PlannedStep, context: RunContext) -> None:
        assert isinstance(step, PlannedParallel)  # noqa: S101 its kind has planned it
        super().__init__(step, context)
        self._parallel = step
        self._launcher = RankLauncher(lambda launch: [self._coordinator(launch)], self._write_order)

    def identify(self, upstream: Mapping[str, FinishedStep], more: Mapping[str, Any] | None = None) -> str:
        """The key: that of any step, the entry script and the rules."""
        step = self._parallel
        rules = {"entry script": step.entry_script, "rules": step.rules.identity()}
        return super().identify(upstream, {**(more or {}), **rules})

    def _coordinator(self, launch: LaunchContext) -> RankCommand:
        # The step's PYTHONPATH is for the entry script, not for the tool.
        argv = tuple(child_command(_START, str(self._order_file), isolated=True))
        command = launch.rank(None, 0, {})
        return RankCommand(None, 0, argv, command.environ, command.cwd, command.log)

    @property
    def _order_file(self) -> Path:
        return self.folder.parallel / "order.json"

    def _write_order(self, launch: LaunchContext) -> None:
        """Write what the coordinator is told; it hands its own variables, those of node 0, to the workers."""
        rules, folder = self._parallel.rules, self.folder.parallel
        folder.mkdir(exist_ok=True)
        program = Path(shutil.copy(_WORKER, folder / "worker.py"))
        try:
            script, *arguments = shlex.split(launch.command)
        except ValueError as error:
            raise UsageError(f"the program arguments cannot be divided: {error} in {launch.command!r}.") from None
        write_json_file(
            self._order_file,
            {
                "rules": rules.document(),
                "input": launch.shared[f"AZURE_ML_INPUT_{rules.input_data}"],
                "append_to": self._append_to(launch),
                "folder": str(folder),
                "program": str(program),
                "worker": {
                    "entry_script": script,
                    "arguments": arguments,
                    "header": rules.header,
                    "logging_level": rules.logging_level,
                },
                "workers": [self._place(launch, number) for number in range(self.step.ranks)],
            },
        )

    def _append_to(self, launch: LaunchContext) -> str:
        """The file of all results; empty where they are only counted."""
        rules = self._parallel.rules
        if not rules.append_row_to:
            return ""
        place = Path(launch.shared[f"AZURE_ML_OUTPUT_{rules.append_row_to}"])
        is_file = self.step.outputs[rules.append_row_to].type == "uri_file"
        return str(place if is_file else place / rules.results_name)

    def _place(self, launch: LaunchContext, number: int) -> dict[str, Any]:
        """Where a worker runs: they go to the nodes in turn, so that few mini batches use all of them."""
        node = number % self.step.nodes
        differing = {name: value for name, value in launch.of_node(node).items() if name not in launch.overrides}
        return {
            "number": number,
            "cwd": str(self.folder.work(node)),
            "variables": {"AZUREML_PROCESS_NAME": f"rank_{number}", **differing},
            "log": str(self.folder.log(number)),
        }

    def preview(self, published: Mapping[str, Path], finished: FinishedStep | None) -> dict[str, Any]:
        """As of any step, and what it does with its mini batches."""
        return {**super().preview(published, finished), "parallel": self._parallel.rules.document()}
