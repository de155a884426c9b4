"""What the engine needs of tracking, in one object for each run: the runs of its steps, and where ranks log to."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.folders import RunFolder, RunsHome
from allranks.local.tracking.endpoint import TrackingEndpoint
from allranks.local.tracking.jobs import JobRuns, job_run_id
from allranks.local.tracking.reading import TrackingReader


class PlannedTracking:
    """The tracking of a run that is only shown: it has the names of what there would be, and nothing happens."""

    def __init__(self, home: RunsHome, run_id: str, experiment: str) -> None:
        self.reader = TrackingReader(home)
        self._run_id = run_id
        self._experiment = experiment

    def variables(self, step: str, environ: Mapping[str, str]) -> dict[str, str]:
        """What tells MLflow in the ranks of a step where to log, and Azure ML's own names of the same."""
        run_id, experiment_id = job_run_id(self._run_id, step), self._experiment_id()
        return {
            "AZUREML_RUN_ID": run_id,
            "AZ_BATCH_JOB_ID": run_id,
            "AZUREML_EXPERIMENT_ID": experiment_id,
            "MLFLOW_RUN_ID": run_id,
            "MLFLOW_EXPERIMENT_ID": experiment_id,
            "MLFLOW_EXPERIMENT_NAME": self._experiment,
            **self._address(environ, run_id),
        }

    def begin_step(self, step: str, parent: str = "") -> None:
        """A step or trial begins, or another attempt at it; ``parent`` is the sweep of a trial."""

    def end_step(self, step: str, status: str) -> None:
        """A step or trial that has begun has ended with this status."""

    def _experiment_id(self) -> str:
        return "<experiment>"

    def _address(self, environ: Mapping[str, str], job: str) -> dict[str, str]:  # noqa: ARG002
        return {"MLFLOW_TRACKING_URI": "http://127.0.0.1:<port>", "MLFLOW_TRACKING_TOKEN": "<token>"}


class RunTracking(PlannedTracking):
    """The tracking of one run of a pipeline.

    Args:
        home: the runs folder.
        folder: the run's, which has been marked as alive.
        experiment: the name of its experiment.
        name: of the pipeline.

    Raises:
        StorageError: the database cannot be written.
    """

    def __init__(self, home: RunsHome, folder: RunFolder, experiment: str, name: str) -> None:
        super().__init__(home, folder.id, experiment)
        self._jobs = JobRuns(home, folder.id, experiment, name)
        self.endpoint = TrackingEndpoint(home, folder.path / "tracking.txt")

    def begin(self) -> None:
        """Make the pipeline's own run.

        Raises:
            StorageError: the database cannot be written.
        """
        self._jobs.begin()

    def begin_step(self, step: str, parent: str = "") -> None:
        """Make the run of a step or trial, or continue it.

        Raises:
            StorageError: the database cannot be written.
        """
        self._jobs.begin_step(step, parent)

    def end_step(self, step: str, status: str) -> None:
        """Set how a step or trial has ended."""
        self._jobs.end(status, step)

    def close(self, status: str) -> None:
        """Take the last logs, end the server and the pipeline's run; it has ended with this status."""
        self.endpoint.close()
        self._jobs.end(status)
        self._jobs.close()
        self.reader.close()

    def _experiment_id(self) -> str:
        return self._jobs.experiment_id

    def _address(self, environ: Mapping[str, str], job: str) -> dict[str, str]:
        return self.endpoint.variables(environ, job)
