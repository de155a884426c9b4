"""The contract of the script with which Azure ML serves MLflow models, in short: `azmlinfsrv --entry_script scoring.py`.

The script is in `assets/inference/environments/mlflow-py312-inference` of github.com/Azure/azureml-assets. As there, an
import that fails, or a signature without a sample, ends the server at its start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import azureml_inference_server_http  # noqa: F401
import mlflow.pyfunc
import numpy as np
import pandas as pd
from azureml.ai.monitoring import Collector  # noqa: F401
from inference_schema.parameter_types.abstract_parameter_type import AbstractParameterType
from inference_schema.parameter_types.numpy_parameter_type import NumpyParameterType
from inference_schema.parameter_types.pandas_parameter_type import PandasParameterType
from inference_schema.schema_decorators import input_schema, output_schema
from mlflow.models import Model
from mlflow.pyfunc.scoring_server import _get_jsonable_obj
from mlflow.types.schema import Schema

FOLDER = Path(os.environ["AZUREML_MODEL_DIR"], os.environ["MLFLOW_MODEL_FOLDER"])


class Anything(AbstractParameterType):  # type: ignore[misc]
    """What has no sample is passed on as it came."""

    def __init__(self) -> None:
        super().__init__(None)

    def deserialize_input(self, input_data: Any) -> Any:
        return input_data

    def input_to_swagger(self) -> dict[str, Any]:
        return {"type": "object", "example": {}}


def saved_example(model: Model) -> Any:
    """The sample that was saved with a model; None where there is none."""
    described = model.saved_input_example_info
    if not described:
        return None
    held = json.loads((FOLDER / described["artifact_path"]).read_text())
    if described["type"] == "ndarray":
        return np.asarray(held["inputs"])
    return pd.DataFrame(held["data"], columns=held["columns"])


def made_sample(schema: Schema) -> Any:
    """One row of a tensor, or no row of a table."""
    if schema.is_tensor_spec():
        (tensor,) = schema.inputs
        return np.zeros((1, *tensor.shape[1:]), tensor.type)
    return pd.DataFrame(columns=schema.input_names()).astype(
        dict(zip(schema.input_names(), schema.pandas_types(), strict=True))
    )


def parameter(sample: Any, orient: str) -> AbstractParameterType:
    """How a body is read, by a sample."""
    if sample is None:
        return Anything()
    if isinstance(sample, np.ndarray):
        return NumpyParameterType(sample, enforce_shape=False)
    return PandasParameterType(sample, enforce_shape=False, orient=orient)


described = Model.load(str(FOLDER))
example = saved_example(described)
inputs = parameter(made_sample(described.signature.inputs) if example is None else example, "split")
results = described.signature.outputs
outputs = parameter(made_sample(results) if results else None, "records")
model = mlflow.pyfunc.load_model(str(FOLDER))


def init() -> None:
    """The model is loaded already."""


@input_schema("input_data", inputs)  # type: ignore[untyped-decorator]
@output_schema(outputs)  # type: ignore[untyped-decorator]
def run(input_data: Any) -> Any:
    """Predict, and give what JSON can have."""
    return _get_jsonable_obj(model.predict(input_data), pandas_orient="records")
