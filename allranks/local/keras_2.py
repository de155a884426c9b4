"""What a script that was written for Keras 2 says when it meets Keras 3, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SAYS = re.compile(
    r"Argument\(s\) not recognized: |`keras\.optimizers\.legacy` is not supported in Keras 3"
    r"|Invalid filepath extension for saving|filepath provided must end in `\.(?:keras|weights\.h5)`"
    r"|Keras 3 only supports V3|A KerasTensor cannot be used as input to a TensorFlow function"
    r"|module 'keras\.(?:_tf_keras|api|src)[\w.]*' has no attribute"
    r"|No module named '(?:tensorflow\.)?keras\.(?:wrappers|utils\.np_utils)"
)
KERAS_2_HELP = (
    "this looks like a script for Keras 2 that met Keras 3: an environment with tf_keras of TensorFlow's version, and"
    " the variable TF_USE_LEGACY_KERAS=1, run it as it is (https://keras.io/getting_started/)"
)


def keras_2_help(lines: Iterable[str]) -> str:
    """The help for a step with these last lines; empty if they say nothing of the kind."""
    return KERAS_2_HELP if any(map(_SAYS.search, lines)) else ""
