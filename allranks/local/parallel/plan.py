"""A parallel step as it is planned, and the order for its coordinator: a document, since that is another process."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from allranks.local.plan import PlannedStep

DEFAULT_RESULTS = "parallel_run_step.txt"
"""The file of all results in an output that is a folder; ``--append_row_file_name`` gives another name."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How mini batches are made, and how many may fail; every binding followed.

    Attributes:
        input_data: the input that is divided, of type ``input_type``.
        size: files of a mini batch; None for what Azure ML takes: one file.
        error_threshold: items that may fail, -1 for all; ``mini_batch_error_threshold`` the same of mini batches.
        allowed_failed_percent: of all mini batches, 0 to 100.
        max_retries: of a mini batch; ``run_timeout`` is in seconds and of one call of ``run``.
        overhead_timeout: seconds to load a mini batch; ``first_task_timeout`` until ``init`` has returned.
        header: whether results that are tables have a header.
    """

    input_data: str
    input_type: str
    size: int | None
    error_threshold: int
    mini_batch_error_threshold: int
    max_retries: int
    run_timeout: float
    logging_level: str
    append_row_to: str
    allowed_failed_percent: float = 100.0
    overhead_timeout: float = 600.0
    first_task_timeout: float = 600.0
    results_name: str = DEFAULT_RESULTS
    header: bool = False

    def document(self) -> dict[str, Any]:
        """It as JSON has it."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What makes the results of two steps the same: all but how long things may take and what is logged."""
        timing = ("run_timeout", "overhead_timeout", "first_task_timeout", "logging_level")
        return {key: value for key, value in asdict(self).items() if key not in timing}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedParallel(PlannedStep):
    """A parallel step; its processes are the workers."""

    entry_script: str
    rules: BatchRules

    def command(self, data: Mapping[str, str], outputs: Mapping[str, str]) -> str:
        """The entry script with its arguments, of which the first are those that the service adds."""
        written = super(PlannedParallel, self).command(data, outputs)
        return " ".join([shlex.quote(self.entry_script), shlex.join(self._added()), written.strip()]).strip()

    def _added(self) -> list[str]:
        """What Azure ML's driver is started with, and what entry scripts therefore see in ``sys.argv``.

        Source: ``_generate_main_file_args`` of azureml-pipeline-steps' parallel run step.
        """
        rules = self.rules
        added = {
            "scoring_module_name": self.entry_script,
            "mini_batch_size": rules.size,
            "error_threshold": rules.error_threshold,
            "output_action": "append_row" if rules.append_row_to else "summary_only",
            "logging_level": rules.logging_level,
            "run_invocation_timeout": f"{rules.run_timeout:g}",
            "run_max_try": rules.max_retries + 1,
            "append_row_file_name": rules.results_name if rules.append_row_to else "",
            "process_count_per_node": self.processes,
        }
        return [word for name, value in added.items() if value not in (None, "") for word in (f"--{name}", str(value))]
