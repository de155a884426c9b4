"""The small files that make a folder an MLflow model, as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata

from .card import LANGUAGE_MODELING, ModelCard
from .raw_rows import predicted_columns, table_columns

_OLDEST_MLFLOW = "2.13.0"
"""The first one that loads models from code."""

_OLDEST_FOR_TABLES = "2.19.0"
"""The first one whose signatures have columns of any type."""

_COLUMNS = [
    {"type": "string", "name": "text", "required": False},
    {"type": "array", "items": {"type": "long"}, "name": "tokens", "required": False},
]
"""What a model of transformers takes: one of the two."""

_SERVING = ("azureml-ai-monitoring", "azureml-inference-server-http")
"""What Azure ML's scoring script for MLflow models imports, besides an MLflow below 3."""

_EXAMPLE_NAME = "input_example.json"


def mlmodel_document(card: ModelCard, python: str, size: int) -> str:
    """Text of `MLmodel`; its fields are those of MLflow 3's `save_model` for a script. `size` is in bytes."""
    of_text = card.task == LANGUAGE_MODELING
    tensors = [_tensor(card.input_dtype, [-1, -1] if of_text else [-1, *card.input_shape])]
    inputs = _COLUMNS if card.framework == "transformers" else tensors
    outputs = None if of_text else [_tensor("float32", [-1, card.outputs])]
    if card.table:
        inputs, outputs = table_columns(card.table), predicted_columns(card.task)
    kind = "dataframe, pandas_orient: split" if card.table or card.framework == "transformers" else "ndarray"
    example = "".join(
        f"saved_input_example_info: {{artifact_path: {name}, type: {kind}}}\n" for name in example_file(card)
    )
    return f"""\
flavors:
  python_function:
    artifacts:
      model:
        path: artifacts/model
        uri: artifacts/model
    code: null
    env:
      conda: conda.yaml
      virtualenv: python_env.yaml
    loader_module: mlflow.pyfunc.loaders.code_model
    model_code_path: serve.py
    python_version: {python}
    streamable: false
mlflow_version: {oldest_mlflow(card)}
model_size_bytes: {size}
{example}signature:
  inputs: {_quoted(inputs)}
  outputs: {_quoted(outputs)}
  params: null
utc_time_created: '{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}'
"""


def example_file(card: ModelCard) -> dict[str, str]:
    """Text of the file with an example of what a model takes, by name; empty for a model that needs none on Azure ML.

    Azure ML's scoring script makes an example of the signature: of columns of one plain type, or of a tensor whose
    first size alone is open. For any other signature the script fails at its start, unless the model has an example.
    Later the script converts a column to the type that it has in the example. A text there allows any type, such as
    the "?" of a column with missing cells, which has a "fill".
    """
    columns = {"text": "An example."} if card.framework == "transformers" else {
        column["name"]: (column["values"] or [""])[-1] if "values" in column else str(column.get("fill", "")) or 0.0
        for column in card.table.get("columns", ())
    }  # fmt: skip
    if not columns and card.task != LANGUAGE_MODELING:
        return {}
    table = {"columns": [*columns], "index": [0], "data": [[*columns.values()]]}
    return {_EXAMPLE_NAME: json.dumps(table if columns else {"inputs": [[0, 1]]})}


def oldest_mlflow(card: ModelCard) -> str:
    """The first version of MLflow that loads a model and knows its signature."""
    return _OLDEST_FOR_TABLES if card.table else _OLDEST_MLFLOW


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of packages, without what names a build; empty for one that only serving needs, and that is not here."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def environment_files(python: str, installed: Mapping[str, str], mlflow: str = _OLDEST_MLFLOW) -> dict[str, str]:
    """Text of the three files from which MLflow and Azure ML make an environment, by name.

    `installed` maps each package that the model needs to its version; any will do where that is empty.
    `mlflow` is the oldest version that serves it.
    """
    needed = [f"{name}=={version}" if version else name for name, version in installed.items()]
    packages = [f"mlflow>={mlflow},<3", *_SERVING, *needed]
    lines = "".join(f"  - {package}\n" for package in packages)
    return {
        "requirements.txt": "".join(f"{package}\n" for package in packages),
        "python_env.yaml": f"python: {python}\nbuild_dependencies:\n- pip\n- setuptools\n- wheel\n"
        "dependencies:\n- -r requirements.txt\n",
        "conda.yaml": "name: mlflow-env\nchannels:\n- conda-forge\ndependencies:\n"
        f"- python={python}\n- pip\n- pip:\n{lines}",
    }


def _quoted(columns: object) -> str:
    """JSON between the single quotes of YAML; null for None."""
    return "'{}'".format(json.dumps(columns).replace("'", "''")) if columns else "null"


def _tensor(dtype: str, shape: list[int]) -> dict[str, object]:
    return {"type": "tensor", "tensor-spec": {"dtype": dtype, "shape": shape}}
