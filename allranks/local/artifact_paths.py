"""What a script is told that logs an MLflow model or file under an absolute path, which Azure ML takes.

MLflow leaves the check to the store. Those of MLflow itself refuse such a path; Azure ML's does not look
(``azureml.mlflow._store.artifact.artifact_repo`` of azureml-mlflow 1.57, whose ``log_artifacts`` uploads to what it is
given), so that scripts which hand an output's path to ``log_model`` run there with MLflow 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_REFUSED = re.compile(r"Invalid artifact path: '/")


def artifact_path_help(lines: Sequence[str]) -> str:
    """The help for a step with these last lines; empty if they say nothing of the kind."""
    if not any(map(_REFUSED.search, lines)):
        return ""
    return (
        "MLflow's own stores refuse an absolute artifact path, and Azure ML's takes it: give log_model a name such as"
        " 'model' for both, and save_model the path of an output"
    )
