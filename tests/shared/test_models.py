"""The zoo, bring-your-own, and saved models that MLflow serves without the library and without pickle."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from shared.distributed import Refusal
from shared.models import ModelCard, NormalisedModel, build_network, check_saveable, load_model, save_model
from shared.models.card import LANGUAGE_MODELING
from shared.models.decoder import DecoderSettings
from shared.models.folder import HUGGINGFACE_NAME, begin_model, finish_model
from shared.models.package import finish_decoder, from_card
from shared.models.standard_resnet import BottleneckBlock, StandardResNet
from shared.models.transformers.package import finish_transformer
from shared.models.vit import ViT
from tests.shared.serving import check_azure_serves, served_apart

CLASSES = ("zero", "one", "two")


LARGE = ("resnet34", "resnet50", "vit_s", "vit_b", "vit_small_patch16", "vit_base_patch16")
"""Their blocks are those of the others, of the small ones below, or of test_published_weights: going through every case
cost two minutes."""
TRIED = ("mlp", "resnet", pytest.param("resnet18", marks=pytest.mark.exhaustive), "vit")


def card(architecture: str = "mlp", shape: tuple[int, ...] = (8, 8, 1), dtype: str = "uint8") -> ModelCard:
    return ModelCard(architecture, shape, dtype, CLASSES, (4.9,) * shape[-1], (6.0,) * shape[-1])


def rows(count: int = 5, shape: tuple[int, ...] = (8, 8, 1)) -> torch.Tensor:
    return torch.randint(0, 17, (count, *shape), dtype=torch.uint8)


@pytest.mark.parametrize("architecture", TRIED)
@pytest.mark.parametrize(
    "shape",
    [
        (8, 8, 1),
        *(pytest.param(shape, marks=pytest.mark.exhaustive) for shape in ((28, 28, 1), (32, 32, 3))),
        (17, 30, 2),
    ],
)
def test_the_zoo_takes_images_of_any_size(architecture: str, shape: tuple[int, int, int]) -> None:
    logits = from_card(card(architecture, shape))(rows(2, shape))
    assert logits.shape == (2, 3)
    assert bool(torch.isfinite(logits).all())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", LARGE)
@pytest.mark.parametrize("shape", [(8, 8, 1), (17, 30, 2), (224, 224, 3)])
def test_the_large_ones_of_the_zoo_take_images_of_any_size(architecture: str, shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):  # shapes alone; their numbers of parameters are in test_initial_model
        logits = from_card(card(architecture, shape))(torch.empty(2, *shape))
    assert logits.shape == (2, 3)


@pytest.mark.slow
def test_blocks_that_only_large_ones_have_compute_and_learn() -> None:
    """A ResNet of bottlenecks, and a vision transformer of patches that are smaller than an eighth of the image."""
    batch = torch.randn(2, 3, 72, 72)
    nets = (
        StandardResNet((3, 72, 72), 3, (1, 2, 1, 1), BottleneckBlock),
        ViT((3, 72, 72), 3, 32, 2, heads=2, largest_patch=4),
    )
    for net in nets:
        logits = net(batch)
        assert bool(torch.isfinite(logits).all())
        nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
        assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.parametrize("architecture", ["mlp", "resnet", "vit"])  # resnet18 normalises by batches
def test_the_zoo_has_nothing_that_depends_on_the_other_rows(architecture: str) -> None:
    module, batch = from_card(card(architecture)).double(), rows(6)
    apart = torch.cat([module(part) for part in batch.split(2)])
    assert torch.allclose(module(batch), apart, rtol=0, atol=1e-12)
    assert torch.equal(module(batch), module.eval()(batch))


@pytest.mark.parametrize("architecture", TRIED)
def test_every_parameter_gets_a_gradient(architecture: str) -> None:
    module = from_card(card(architecture))
    nn.functional.cross_entropy(module(rows()), torch.tensor([0, 1, 2, 0, 1])).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_normalisation_works_on_the_last_axis_and_leaves_constant_channels_finite() -> None:
    module = NormalisedModel((2.0, 5.0), (4.0, 0.0), nn.Identity())
    out = module(torch.tensor([[[[2, 5], [6, 5]]]], dtype=torch.uint8))
    assert out.shape == (1, 2, 1, 2)
    assert out.tolist() == [[[[0.0, 1.0]], [[0.0, 0.0]]]]


def test_a_table_needs_no_channels() -> None:
    module = from_card(card(shape=(13,), dtype="float64"))
    assert module(torch.randn(4, 13, dtype=torch.float64)).shape == (4, 3)
    with pytest.raises(Refusal, match="resnet takes images"):
        build_network("resnet", (13,), 3)


USERS = """
from torch import nn
import neighbour

Other = 3

def build(input_shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_outputs * neighbour.ONE))

def number(input_shape, num_outputs):
    return 7

def no_arguments():
    return nn.Identity()

def broken(input_shape, num_outputs):
    raise KeyError("depth")
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(USERS)
    (folder / "neighbour.py").write_text("ONE = 1\n")
    (folder / "bad.py").write_text("import does_not_exist\n")
    return folder


@pytest.mark.parametrize(
    ("architecture", "text"),
    [
        (
            "mpl",
            "choose mlp, resnet, resnet18, resnet34, resnet50, vit, vit_s, vit_b, vit_small_patch16, vit_base_patch16, or FILE.py:FUNCTION",
        ),
        ("mine.py", "FILE.py:FUNCTION"),
        ("mine.py:1", "FILE.py:FUNCTION"),
        ("other.py:build", "there is no other.py in .* which holds bad.py, mine.py, neighbour.py"),
        ("../mine.py:build", "there is no"),
        ("bad.py:build", "cannot be imported: ModuleNotFoundError: No module named 'does_not_exist'"),
        ("mine.py:make", "has no function or class make; it has build, number, no_arguments, broken"),
        ("mine.py:Other", "has no function or class Other"),
        ("mine.py:number", "returned int; it has to return a torch.nn.Module"),
        ("mine.py:no_arguments", r"no_arguments\(\) has to take \(input_shape, num_outputs\)"),
        ("mine.py:broken", "raised KeyError: 'depth'"),
    ],
)
def test_what_is_wrong_with_the_users_function_is_said(architecture: str, text: str, code: Path) -> None:
    with pytest.raises(Refusal, match=text):
        build_network(architecture, (8, 8, 1), 3, code)


def test_a_model_in_the_folder_of_its_code_does_not_copy_itself(code: Path) -> None:
    made = card("mine.py:build")
    save_model(code / "outputs" / "model", from_card(made, code), made, code)
    copied = code / "outputs" / "model" / "artifacts" / "model" / "model_code"
    assert (copied / "mine.py").is_file()
    assert not list((copied / "outputs").iterdir())


@pytest.mark.parametrize("architecture", TRIED)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.exhaustive)])
def test_a_saved_model_comes_back_the_same(architecture: str, dtype: torch.dtype, tmp_path: Path) -> None:
    module = from_card(card(architecture)).to(dtype)
    generator = torch.get_rng_state()
    check_saveable(module, card(architecture))
    save_model(tmp_path, module, card(architecture))
    loaded, loaded_card = load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), generator)
    assert loaded_card == card(architecture)
    assert not loaded.training
    batch = rows()
    assert torch.equal(loaded(batch), module.eval()(batch))
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".pkl", ".pt", ".bin"}]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight


def test_what_cannot_be_saved_is_refused_before_training() -> None:
    strange = nn.Linear(2, 2)
    strange.register_buffer("table", torch.eye(2).to_sparse())
    for net, said in (
        (Tied(), "net.first.weight and net.second.weight share memory"),
        (nn.LazyLinear(3), "net.weight of the model has no size yet"),
        (strange, "net.table in its state is a torch.sparse_coo"),
        (nn.Linear(2, 2), "mlp cannot be saved: a second one, built in the same way, does not take the weights"),
    ):
        with pytest.raises(Refusal, match=said):
            check_saveable(NormalisedModel((0.0,), (1.0,), net), card())


def test_a_damaged_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="holds no model of this library"):
        load_model(tmp_path)
    save_model(tmp_path, from_card(card()), card())
    weights = tmp_path / "artifacts" / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    with pytest.raises(Refusal, match="cannot be read"):
        load_model(tmp_path)


@pytest.mark.slow
def test_mlflow_serves_saved_models_where_the_library_is_not(code: Path, tmp_path: Path) -> None:
    sizes = DecoderSettings(61, 12, layers=2, width=24, heads=6)
    decoder = ModelCard("decoder", (12,), "int64", task=LANGUAGE_MODELING, vocabulary=61, settings=asdict(sizes))
    expected, given = [], {}
    for number, described in enumerate((card(), card("vit"), card("mine.py:build"), decoder)):
        users = code if ":" in described.architecture else None
        module = from_card(described, users).eval()
        save_model(tmp_path / str(number), module, described, users)
        batch = torch.randint(0, 61, (5, 9)) if described is decoder else rows(1500)
        given[tmp_path / str(number)] = batch.numpy()
        with torch.no_grad():
            expected.append(module(batch))
    for logits, served in zip(expected, served_apart(tmp_path, given), strict=True):
        np.testing.assert_allclose(served, logits, rtol=0, atol=1e-5)


def test_azure_serves_saved_models(code: Path, tmp_path: Path) -> None:
    """Of each trainer with torch; tests/environments/test_serving.py runs the script itself."""
    save_model(tmp_path / "pictures", from_card(card()), card())
    own = card("mine.py:build")
    save_model(tmp_path / "lightning", from_card(own, code), own, code, packages=["lightning"])
    assert "\nlightning==" in (tmp_path / "lightning" / "requirements.txt").read_text()
    columns = [{"name": "a"}, {"name": "b", "fill": 1.5, "marked": True}, {"name": "c", "values": ["", "x"]}]
    table = ModelCard("mlp", (4,), "float32", CLASSES, table={"columns": columns, "missing": ["?"]})
    begin_model(tmp_path / "table")
    finish_model(tmp_path / "table", table, {})
    example = json.loads((tmp_path / "table" / "input_example.json").read_text())
    assert example == {"columns": ["a", "b", "c"], "index": [0], "data": [[0.0, "1.5", "x"]]}
    sizes = asdict(DecoderSettings(257, 8, layers=1, width=16, heads=2))
    decoder = ModelCard("decoder", (8,), "int64", task=LANGUAGE_MODELING, vocabulary=257, settings=sizes)
    (begin_model(tmp_path / "decoder") / HUGGINGFACE_NAME).mkdir()
    finish_decoder(tmp_path / "decoder", decoder, torch.float32, None)
    for task in ("text_classification", LANGUAGE_MODELING):
        classes = () if task == LANGUAGE_MODELING else CLASSES
        texts = ModelCard("bert", (8,), "int64", classes, task=task, framework="transformers", vocabulary=257)
        begin_model(tmp_path / task)
        finish_transformer(tmp_path / task, texts, None)
    for folder in tmp_path.glob("*/MLmodel"):
        check_azure_serves(folder.parent)


def test_the_files_are_those_that_mlflow_writes(tmp_path: Path) -> None:
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec

    save_model(tmp_path / "ours", from_card(card()), card())
    signature = ModelSignature(
        Schema([TensorSpec(np.dtype("uint8"), (-1, 8, 8, 1))]), Schema([TensorSpec(np.dtype("float32"), (-1, 3))])
    )
    mlflow.pyfunc.save_model(
        str(tmp_path / "theirs"),
        python_model=str(tmp_path / "ours" / "serve.py"),
        artifacts={"model": str(tmp_path / "ours" / "artifacts" / "model")},
        signature=signature,
        pip_requirements=["torch"],
    )
    ours, theirs = (yaml.safe_load((tmp_path / who / "MLmodel").read_text()) for who in ("ours", "theirs"))
    assert set(ours) <= set(theirs)
    mine, flavor = ours["flavors"]["python_function"], theirs["flavors"]["python_function"]
    assert set(mine) <= set(flavor)
    for name in ("loader_module", "env", "python_version", "streamable", "code"):
        assert mine[name] == flavor[name]
    assert Path(flavor["model_code_path"]).name == mine["model_code_path"]
    assert Model.load(str(tmp_path / "ours")).signature == signature
    shutil.rmtree(tmp_path / "ours" / "__pycache__", ignore_errors=True)  # MLflow has imported serve.py from there
    assert {path.name for path in (tmp_path / "ours").iterdir()} == {
        path.name for path in (tmp_path / "theirs").iterdir()
    }
