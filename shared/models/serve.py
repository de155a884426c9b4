"""MLflow runs this script to load a saved model: ``mlflow.pyfunc.load_model(folder).predict(rows)``.

A model of transformers takes ``pandas.DataFrame({"text": ["..."]})``, or a column ``tokens`` of lists.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """A saved model as MLflow calls it; see ``load_served`` of its framework for what it takes and gives."""

    def load_context(self, context: PythonModelContext) -> None:
        """Rebuild the network with the code that lies beside its weights."""
        inside = Path(context.artifacts["model"])
        framework = json.loads((inside / "card.json").read_text(encoding="utf-8"))["framework"]
        package = "package" if framework == "torch" else f"{framework}.package"
        self.served = importlib.import_module(f"{_import_zoo(inside / 'zoo')}.{package}").load_served(inside)

    # A bare np.ndarray, because MLflow warns about any other annotation of arrays, and about none.
    def predict(
        self,
        context: PythonModelContext,
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Compute float32 outputs."""
        outputs: np.ndarray[Any, Any] = self.served(model_input)
        return outputs


def _import_zoo(folder: Path) -> str:
    """Import the package under a name that belongs to this model: two models may be of two versions."""
    name = f"zoo_of_model_{abs(hash(folder)):x}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # it ends in .py
    sys.modules[name] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return name


set_model(ServedModel())
