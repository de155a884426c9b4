"""What a script that names an MLflow model by an absolute path is told here, and what Azure ML makes of it.

MLflow 2 leaves the check to the store: those of MLflow itself refuse such a path, Azure ML's does not look
(``azureml.mlflow._store.artifact.artifact_repo`` of azureml-mlflow 1.57, whose ``log_artifacts`` uploads to what it is
given). From version 3 on ``Model.log`` refuses a slash in a name, wherever it logs to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_OF_STORES = re.compile(r"Invalid artifact path: '/")
_OF_MLFLOW_3 = re.compile(r"Invalid model name \('/")
_REMEDY = "give log_model a name such as 'model', and save_model the path of an output"


def artifact_path_help(lines: Sequence[str]) -> str:
    """The help for a step with these last lines; empty if they say nothing of the kind."""
    if any(map(_OF_STORES.search, lines)):
        return f"an absolute artifact path is refused by MLflow 2's own stores; Azure ML's takes it: {_REMEDY} for both"
    if any(map(_OF_MLFLOW_3.search, lines)):
        return f"from version 3 on MLflow refuses a path as a model's name, on Azure ML too: {_REMEDY}"
    return ""
