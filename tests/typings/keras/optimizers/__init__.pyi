from collections.abc import Iterable, Sequence

from keras import Variable

from . import schedules as schedules

class Optimizer:
    @property
    def variables(self) -> list[Variable]: ...
    def apply(self, grads: Iterable[object], trainable_variables: Iterable[Variable]) -> None: ...
    def build(self, variables: Sequence[Variable]) -> None: ...

class SGD(Optimizer):
    def __init__(self, learning_rate: object, momentum: float, *, nesterov: bool) -> None: ...

class Adam(Optimizer):
    def __init__(self, learning_rate: object, beta_1: float, beta_2: float, *, epsilon: float) -> None: ...

class AdamW(Optimizer):
    def __init__(
        self,
        learning_rate: object,
        weight_decay: float,
        beta_1: float = ...,
        beta_2: float = ...,
        *,
        epsilon: float,
        global_clipnorm: float | None = ...,
    ) -> None: ...
    def exclude_from_weight_decay(self, var_list: Sequence[Variable]) -> None: ...
