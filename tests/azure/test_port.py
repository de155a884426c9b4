"""An input of a pipeline says what that of the component says, but for what is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.ai.ml.dsl import pipeline

from allranks import catalogue, components, port
from allranks.errors import UnknownNameError
from allranks.spec import read_component


@pytest.mark.parametrize("component", ["train_ddp", "prepare_text"])
def test_every_input_is_declared_as_the_component_declares_it(component: str) -> None:
    for name, declared in read_component(catalogue.component_files()[component]).inputs.items():
        made = port(component, name)
        assert (made.type, bool(made.optional), made.description) == (
            declared.type,
            declared.optional,
            declared.description,
        )
        if not declared.is_data:
            assert (made.default, made.min, made.max) == (declared.default, declared.min, declared.max)
            assert tuple(made.enum or ()) == declared.enum


def test_a_default_in_the_function_counts_and_otherwise_the_component_s() -> None:
    def small(
        *, data: port("train_ddp", "data"), epochs: port("train_ddp", "epochs"), seed: port("train_ddp", "seed") = 7
    ):  # type: ignore[no-untyped-def, valid-type]
        components.train_ddp(data=data, epochs=epochs, seed=seed)

    small.__annotations__ = {name: eval(text) for name, text in small.__annotations__.items()}  # noqa: S307 -- this file postpones them
    inputs = pipeline(small)().inputs  # type: ignore[no-untyped-call]
    assert (inputs.epochs._data, inputs.seed._data) == (15, 7)


def test_a_change_replaces_what_the_component_says() -> None:
    made = port("train_ddp", "epochs", description="Passes.", max=9)
    assert (made.description, made.min, made.max, made.default) == ("Passes.", 1, 9, 15)


def test_a_component_of_one_s_own_is_named_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "component.yaml"
    file.write_text(
        catalogue.component_files()["train_ddp"]
        .read_text()
        .replace("code: .", f"code: {tmp_path}")
        .replace("  - ../../shared\n", f"  - {catalogue.library.root()}/shared\n")
    )
    (tmp_path / "train_ddp.py").touch()
    assert port(file, "epochs").default == 15


@pytest.mark.parametrize(
    ("component", "name", "message"),
    [
        ("train_dpp", "epochs", "there is no component 'train_dpp' (did you mean 'train_ddp'?)."),
        ("train_ddp", "epoch", "'train_ddp' has no input 'epoch' (did you mean 'epochs'?)."),
    ],
)
def test_what_there_is_not(component: str, name: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        port(component, name)
    assert error.value.message == message
