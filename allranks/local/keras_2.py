"""What a script that was written for Keras 2 says when it meets Keras 3, and what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from allranks.local.environments.known import KERAS_2

_OF_TENSORFLOW = re.compile(
    r"Argument\(s\) not recognized: |`keras\.optimizers\.legacy` is not supported in Keras 3"
    r"|Invalid filepath extension for saving|file(?:path provided|name) must end in `\.(?:keras|weights\.h5)`"
    r"|Keras 3 only supports V3|A KerasTensor cannot be used as input to a TensorFlow function"
    r"|module 'keras\.(?:_tf_keras|api|src)[\w.]*' has no attribute"
    r"|unsupported type \(<class 'tensorflow\.python\.distribute\.values\.PerReplica'>"  # fit with several workers
)
_LACKS_TF_KERAS = re.compile(
    r"Keras cannot be imported\. Check|No module named 'tf_keras'|installed version of Keras is Keras 3"
)
_OF_KERAS = re.compile(
    r"No module named '(?:tensorflow\.)?keras\.(?:wrappers|utils\.np_utils|engine|layers\.\w+|preprocessing\.\w+)"
    r"|cannot import name '(?:np_utils|\w+_v2)' from 'keras\."
)
"""Parts of the package ``keras`` 2 that no variable brings back: only tf.keras follows TF_USE_LEGACY_KERAS."""


def keras_2_help(lines: Sequence[str], step: str, variables: Mapping[str, str]) -> str:
    """The help for a step with these last lines; empty if they say nothing of the kind.

    Args:
        lines: the end of its log.
        step: its name, or that of a sweep's trial.
        variables: those that it has from its YAML and its environment.
    """
    if _any_says(_OF_KERAS, lines):
        return (
            "this script imports parts of Keras 2 by the name keras: an environment whose conda file says"
            " tensorflow<2.16 has them, or write tf_keras"
        )
    lacking = _any_says(_LACKS_TF_KERAS, lines)
    if not lacking and not _any_says(_OF_TENSORFLOW, lines):
        return ""
    if not lacking and variables.get("TF_USE_LEGACY_KERAS") == "1":
        return "this looks like a script for Keras 2; tf.keras is that here, `import keras` is not: write tf_keras"
    name = re.sub(r"\.\d+$", "", step)  # a trial runs in its sweep's environment
    return (
        "this looks like a script for Keras 2 that met Keras 3; Azure's environment with TF_USE_LEGACY_KERAS=1 and"
        f" tf_keras runs it as it is: --environment {name}={KERAS_2}"
    )


def _any_says(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return any(map(pattern.search, lines))
