"""Azure's own environments that pipelines name most: Python and the main packages of each, by name and range.

As its sources say in November 2026: github.com/Azure/azureml-assets, assets/training/general/environments. Left out is
what only notebooks, profilers and inference servers need.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_AZURE = ("azureml-core", "azureml-mlflow", "mlflow-skinny<=3.9.0")
"""Of MLflow what Azure's images have: a later one saves models with packages that they lack."""


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """One of Azure's environments; the fields are those of ``EnvironmentRecipe``."""

    name: str
    python: str
    conda: tuple[str, ...]
    pip: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


KERAS_2 = "tensorflow-2.16-cuda12"
"""The one with tf_keras and TF_USE_LEGACY_KERAS=1, on Azure ML too: its Dockerfile ends with that variable."""
_TABLE = (
    KnownEnvironment(
        "sklearn-1.5",
        "3.10",
        ("pandas~=1.5.3", "scipy~=1.10.0", "numpy~=1.22.0"),
        ("scikit-learn~=1.5.0", "joblib~=1.2.0", "matplotlib~=3.5.0", "tqdm~=4.66.3", "psutil", *_AZURE),
    ),
    *(
        KnownEnvironment(
            f"sklearn-{version}",
            "3.9",
            ("pandas~=1.3.0", "scipy~=1.10.0", "numpy~=1.22.0"),
            (f"scikit-learn~={version}.0", "joblib~=1.2.0", "matplotlib~=3.5.0", "tqdm~=4.66.3", "psutil", *_AZURE),
        )
        for version in ("1.1", "1.0")
    ),
    KnownEnvironment(
        "lightgbm-3.3",
        "3.10",
        ("pandas~=1.5.3", "scipy~=1.10.0", "numpy~=1.22.0"),
        ("scikit-learn~=1.5.1", "xgboost~=1.7.6", "lightgbm>=4.6.0", "matplotlib~=3.5.0", "tqdm~=4.66.3", *_AZURE),
    ),
    *(
        KnownEnvironment(
            name,
            "3.11",
            ("pandas==2.2.2", "numpy==1.23.5", "scipy~=1.14.0"),
            (
                *("tensorflow==2.16.2", "tensorboard~=2.16.0", "tensorflow-datasets~=4.9.0", "keras>=3.13.2"),
                # Azure's image compiles Matplotlib 3.5, which has no wheel for Python 3.11.
                *("tf-keras==2.16.0", "matplotlib~=3.6.0", "tqdm~=4.66.3", "psutil", "pillow", *_AZURE),
            ),
            (("TF_USE_LEGACY_KERAS", "1"),),
        )
        for name in (KERAS_2, "tensorflow-2.16-cuda11")
    ),
    KnownEnvironment(
        "acpt-pytorch-2.8-cuda12.6",
        "3.10",
        (),
        (
            *("torch==2.10.0", "torchvision==0.25.0", "torchaudio==2.10.0", "transformers", "tensorboard"),
            *("matplotlib", "tqdm", "psutil", *_AZURE),
        ),
    ),
)
KNOWN_NAMES = tuple(one.name for one in _TABLE)


def known_environment(reference: str) -> KnownEnvironment | None:
    """The environment that a reference or an image means; None if it is none of the table.

    ``azureml:AzureML-sklearn-1.5@latest``, ``azureml://registries/azureml/environments/sklearn-1.5/versions/9``,
    ``mcr.microsoft.com/azureml/curated/sklearn-1.5:9`` and ``sklearn-1.5`` are the same; older names say more after it
    (``AzureML-sklearn-1.0-ubuntu20.04-py38-cpu``).
    """
    name = _named(reference)[0]
    return next((one for one in _TABLE if name == one.name or name.startswith(f"{one.name}-")), None)


def known_image(reference: str) -> str | None:
    """The image in Microsoft's registry that a reference means; None if it is none of the table.

    Its tag is the version; without one, or for a label, it is ``latest``.
    """
    name, version = _named(reference)
    return f"mcr.microsoft.com/azureml/curated/{name}:{version}" if known_environment(reference) else None


def _named(reference: str) -> tuple[str, str]:
    """The name in a reference, in lower case, and its version."""
    found = re.fullmatch(
        r"(?:azureml://registries/azureml/environments/|azureml:(?=AzureML-)|mcr\.microsoft\.com/azureml/curated/)?"
        r"(?:AzureML-)?(?P<name>[\w.-]+)(?:[:@/](?:versions/)?(?P<version>[\w.-]+)?.*)?",
        reference,
        re.IGNORECASE,
    )
    if found is None:
        return "", ""
    version = found["version"] or ""
    return found["name"].lower(), version if version[:1].isdigit() else "latest"
