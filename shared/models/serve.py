"""MLflow runs this script to load a saved model: ``mlflow.pyfunc.load_model(folder).predict(rows)``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

_ROWS_AT_ONCE = 1024
_OUTPUTS_AT_ONCE = 2**24
"""A language model gives a whole vocabulary for each token of a row: 64 MiB of float32 at once."""


class ServedModel(PythonModel):
    """Takes raw rows as the dataset held them and returns one logit for each class, or the value of a regression.

    A language model takes rows of tokens and returns logits for what may follow each.
    """

    def load_context(self, context: PythonModelContext) -> None:
        """Rebuild the network with the code that lies beside its weights."""
        inside = Path(context.artifacts["model"])
        self.module, self.card = _package(inside / "zoo").load_model(inside)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.module.to(self.device)

    # A bare np.ndarray, because MLflow warns about any other annotation of arrays, and about none.
    def predict(
        self,
        context: PythonModelContext,
        model_input: np.ndarray,
        params: dict[str, Any] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Compute float32 outputs (N, outputs) of raw rows (N, *input_shape); of tokens (N, L): (N, L, vocabulary)."""
        del context, params
        rows = torch.from_numpy(
            np.array(model_input, dtype=self.card.input_dtype, ndmin=1 + len(self.card.input_shape))
        )
        per_row = rows.shape[1] * self.card.vocabulary if self.card.vocabulary else 1
        at_once = max(1, min(_ROWS_AT_ONCE, _OUTPUTS_AT_ONCE // max(1, per_row)))
        with torch.inference_mode():
            parts = [self.module(part.to(self.device)).float().cpu() for part in rows.split(at_once)]
        return torch.cat(parts).numpy()


def _package(folder: Path) -> ModuleType:
    """Import the package under a name that belongs to this model: two models may be of two versions."""
    name = f"zoo_of_model_{abs(hash(folder)):x}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  # it ends in .py
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package


set_model(ServedModel())
