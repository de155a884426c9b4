"""MLflow runs this script to load a saved model of transformers.

``mlflow.pyfunc.load_model(folder).predict(pandas.DataFrame({"text": ["..."]}))``, or with a column ``tokens`` of lists.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

    from shared.models import ModelCard
    from shared.models.transformers import TokenModel

_ROWS_AT_ONCE = 64


class ServedModel(PythonModel):
    """Takes texts or their tokens and returns one logit for each class; of a language model, for each next token.

    Texts that are longer than what the model was trained with are cut.
    """

    module: TokenModel
    card: ModelCard
    tokenizer: Tokenizer | None

    def load_context(self, context: PythonModelContext) -> None:
        """Rebuild the network with the code that lies beside its weights."""
        inside = Path(context.artifacts["model"])
        self.module, self.card = _package(inside / "zoo").load_model(inside)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.module.to(self.device)
        self.padding = int(cast("PreTrainedModel", self.module.net).config.pad_token_id or 0)
        self.tokenizer = None
        if self.card.tokenizer != "bytes":
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(inside / "huggingface" / "tokenizer.json"))
            self.tokenizer.no_padding()
            self.tokenizer.enable_truncation(self.card.input_shape[0])

    def predict(
        self,
        context: PythonModelContext,
        model_input: Any,
        params: dict[str, Any] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Compute float32 logits (N, classes), or (N, longest, vocabulary).

        `model_input` is a DataFrame with a column ``text`` or ``tokens``, a list of texts, or an array of tokens
        (N, L), filled up with the padding token.
        """
        del context, params
        rows = self._tokens(model_input)
        width = max(map(len, rows), default=1)
        padded = np.full((len(rows), width), self.padding, np.int64)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        with torch.inference_mode():
            split: Sequence[torch.Tensor] = torch.from_numpy(padded).split(_ROWS_AT_ONCE)
            return torch.cat([self._logits(part) for part in split]).numpy()

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.module(rows.to(self.device))
        return logits.float().cpu()

    def _tokens(self, given: Any) -> list[npt.NDArray[np.int64]]:
        if hasattr(given, "columns"):
            column = "tokens" if "tokens" in given.columns and given["tokens"].notna().all() else "text"
            given = given[column].tolist()
        rows: Sequence[str] | Sequence[Sequence[int]] = given
        if len(rows) and isinstance(rows[0], str):
            rows = self._encode(cast("Sequence[str]", rows))
        return [np.asarray(row, np.int64) for row in rows]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self.tokenizer is None:
            return [list(text.encode()[: self.card.input_shape[0]]) for text in texts]
        return [one.ids for one in self.tokenizer.encode_batch(list(texts))]


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
    return importlib.import_module(f"{name}.transformers")


set_model(ServedModel())
