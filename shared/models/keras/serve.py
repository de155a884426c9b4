"""MLflow runs this script to load a saved model: ``mlflow.pyfunc.load_model(folder).predict(rows)``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

_ROWS_AT_ONCE = 1024


class ServedModel(PythonModel):
    """Takes raw rows as the dataset held them and returns one logit for each class, or the value of a regression."""

    def load_context(self, context: PythonModelContext) -> None:
        """Rebuild the network with the code that lies beside its weights."""
        inside = Path(context.artifacts["model"])
        self.model, self.card = _package(inside / "zoo").load_model(inside)

    # A bare np.ndarray, because MLflow warns about any other annotation of arrays, and about none.
    def predict(
        self,
        context: PythonModelContext,
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Compute float32 logits or values (N, outputs) of raw rows (N, *input_shape)."""
        del context, params
        rows = np.array(model_input, dtype=self.card.input_dtype, ndmin=1 + len(self.card.input_shape))
        parts = [self.model(rows[start : start + _ROWS_AT_ONCE]) for start in range(0, len(rows), _ROWS_AT_ONCE)]
        return np.concatenate([np.asarray(part, np.float32) for part in parts])


def _package(folder: Path) -> Any:
    """Import the package under a name that belongs to this model: two models may be of two versions."""
    name = f"zoo_of_model_{abs(hash(folder)):x}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # it ends in .py
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{name}.keras")


set_model(ServedModel())
