from . import Model

def ResNet50(  # noqa: N802
    *, include_top: bool, weights: str | None, input_shape: tuple[int, ...], pooling: str
) -> Model: ...
