"""Exact metrics of a regression, in the target's own units; what scikit-learn computes, without its 2 s of import."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RegressionMetrics:
    """All that is known about predictions of N targets."""

    targets: _Floats
    predictions: _Floats

    @property
    def residuals(self) -> _Floats:
        """Prediction less target, for each row."""
        return self.predictions - self.targets

    def numbers(self) -> dict[str, float]:
        """Flat metrics by name: ``rmse``, ``mae``, ``r2``, ``bias`` (mean residual), ``largest_error`` and ``rows``.

        ``r2`` is left out where all targets are equal: there is nothing to explain.
        """
        residuals = self.residuals
        variation = float(np.square(self.targets - self.targets.mean()).sum())
        numbers = {
            "rmse": float(np.sqrt(np.square(residuals).mean())),
            "mae": float(np.abs(residuals).mean()),
            "bias": float(residuals.mean()),
            "largest_error": float(np.abs(residuals).max()),
            "rows": float(len(residuals)),
        }
        return numbers | ({"r2": 1 - float(np.square(residuals).sum()) / variation} if variation > 0 else {})


def measure_regression(outputs: npt.NDArray[np.floating], targets: _Floats) -> RegressionMetrics:
    """Measure finite outputs (N, 1) against targets (N,); N is 1 or more."""
    return RegressionMetrics(targets.astype(np.float64), outputs[:, 0].astype(np.float64))
