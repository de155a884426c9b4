"""What a trial has logged of the primary metric: one value for each interval.

It is looked for in ``outputs/metrics.jsonl`` and, since a script that was written for Azure ML calls
``mlflow.log_metric``, in the trial's MLflow run.
"""

from __future__ import annotations

import math

from allranks.local.folders import StepFolder
from allranks.local.metrics_file import MetricsFollower
from allranks.local.tracking.jobs import job_run_id
from allranks.local.tracking.reading import TrackingReader


class MetricHistory:
    """The values of one metric of one trial; what was read once is not read again.

    The folder is the trial's, in the run that executed it.
    """

    def __init__(self, folder: StepFolder, reader: TrackingReader, metric: str) -> None:
        self.folder = folder
        self._file = folder.metrics()
        self._reader = reader
        self._run_id = tracked_trial(folder)
        self._metric = metric
        self._follower = MetricsFollower(self._file)
        self._in_file: list[float] = []

    def values(self) -> list[float]:
        """All finite values so far, in the order of logging."""
        entries, is_anew = self._follower.read_new()
        found = (entry.metrics.get(self._metric) for entry in entries)
        new = [float(value) for value in found if value is not None and math.isfinite(value)]
        self._in_file = new if is_anew else [*self._in_file, *new]
        return self._in_file or [value for value in self._logged() if math.isfinite(value)]

    def is_known_empty(self) -> bool:
        """Whether it is known that a trial without a value has none, rather than that it may have been lost.

        So it is when rank 0 has written other metrics to the file, or when MLflow has a value that is not a number.
        """
        return self._file.is_file() or bool(self._logged())

    def _logged(self) -> list[float]:
        return self._reader.values(self._run_id, self._metric)


def tracked_trial(folder: StepFolder) -> str:
    """The MLflow run of the trial that this folder belongs to."""
    run, _, sweep, _, number = folder.path.parts[-5:]
    return job_run_id(run, f"{sweep}.{number}")
