"""The zoo in Keras, bring-your-own, and saved models that are rebuilt from their own folder."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

from shared.data import Dataset, batches
from shared.data.dataset import reader
from shared.distributed import Refusal
from shared.models import ModelCard
from shared.settings.running import LoaderSettings
from shared.training.core.batch_plan import BatchPlan
from tests.components.training import write_digits
from tests.helpers import run_ranks
from tests.shared.serving import check_azure_serves

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to be imported

ZOO = ("mlp", "resnet")
"""Those that take pictures of any size; resnet50 takes 32 x 32 and more."""


@pytest.fixture(scope="module")
def zoo() -> ModuleType:
    """The package under test; imported here, because TensorFlow takes seconds."""
    import shared.models.keras

    return shared.models.keras


def card(architecture: str = "mlp", shape: tuple[int, ...] = (8, 8, 1), **more: object) -> ModelCard:
    known = {"classes": ("zero", "one", "two"), "mean": (4.9,) * shape[-1], "std": (6.0,) * shape[-1], **more}
    return ModelCard(architecture, shape, "uint8", framework="keras", **known)


@pytest.mark.parametrize("architecture", ZOO)
@pytest.mark.parametrize("shape", [pytest.param((8, 8, 1), marks=pytest.mark.exhaustive), (17, 30, 2)])
def test_the_zoo_takes_images_and_saves_what_it_gives(
    architecture: str, shape: tuple[int, ...], zoo: ModuleType, tmp_path: Path
) -> None:
    model = zoo.build_network(card(architecture, shape))
    rows = np.random.default_rng(0).integers(0, 17, (4, *shape), np.uint8)
    outputs = np.asarray(model(rows))
    assert outputs.shape == (4, 3)
    np.testing.assert_allclose(np.asarray(model(rows[:1]))[0], outputs[0], atol=1e-5)
    zoo.check_saveable(model, card(architecture, shape))
    zoo.save_model(tmp_path, model, card(architecture, shape))
    np.testing.assert_array_equal(np.asarray(zoo.load_model(tmp_path)[0](rows)), outputs)
    check_azure_serves(tmp_path)


@pytest.mark.parametrize("held", [True, False])
def test_ranks_together_see_each_global_batch_and_the_next_is_read_meanwhile(
    held: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared.training.keras import feed

    split = Dataset.open(write_digits(tmp_path, rows=200)).split("train")
    monkeypatch.setattr(reader, "HELD_ARRAY_BYTES", 0)
    monkeypatch.setattr(reader, "HELD_SPLIT_BYTES", 2**20 if held else 0)
    threads = mock.Mock(wraps=feed.read_ahead)
    monkeypatch.setattr(feed, "read_ahead", threads)
    loader = LoaderSettings(loader_workers=2, prefetch=2)
    order = list(batches(split.rows, batch_size=24, seed=5, epoch=3))
    for start in (0, 2, 5):
        feeds = [feed.BatchFeed(split, BatchPlan(24, 4, 2), rank, loader, 5).epoch(3, start) for rank in range(4)]
        parts = list(zip(*feeds, strict=True))
        assert len(parts) == len(order) - start
        for rows, ranks in zip(order[start:], parts, strict=True):
            for name, found in zip(("x", "y"), zip(*ranks, strict=True), strict=True):
                np.testing.assert_array_equal(np.concatenate(found), split.take(rows)[name])
    assert threads.called == (not held)


def test_torch_is_not_imported_for_keras() -> None:
    """Where both are installed it would take a second of each rank."""
    names = ("models.keras", "training.keras.start", "training.keras.state", "training.core.run")
    text = "".join(f"import shared.{name}\n" for name in names) + "import sys\nprint('torch' in sys.modules)"
    (done,) = run_ranks("import tensorflow\n" + text, processes=1)
    assert done.stdout == "False\n", done.stderr


def test_a_label_that_is_no_class_makes_the_loss_no_number() -> None:
    """Shares of no class would be 0, and so would be the loss: a training that goes on and learns nothing of them."""
    import tensorflow as tf

    from shared.training.keras.objective import ClassificationObjective

    outputs = tf.constant([[0.1, 0.2, 0.3]])
    for label in (3, -1):
        assert math.isnan(float(ClassificationObjective(0.1).summed_loss(outputs, tf.constant([label]))))
    right = float(ClassificationObjective().summed_loss(outputs, tf.constant([2])))
    assert right == pytest.approx(float(tf.nn.sparse_softmax_cross_entropy_with_logits([2], outputs)[0]), rel=1e-6)


def test_a_regression_speaks_in_the_units_of_its_target(zoo: ModuleType) -> None:
    of = card(shape=(5,), classes=(), task="regression", target="y", target_mean=5000.0, target_std=10.0)
    outputs = np.asarray(zoo.build_network(of)(np.zeros((100, 5), np.uint8)))
    assert outputs.shape == (100, 1)
    assert np.abs(outputs - 5000).max() < 100


FILES = {
    "build": "def build(shape, outputs): return keras.layers.Dense(outputs)",
    "shape": "def shape(shape, outputs): return keras.layers.Dense(outputs + 1)",
    "number": "number = 3",
    "nothing": "def nothing(shape, outputs): return None",
    "broken": "def broken(shape, outputs): raise KeyError('why')",
    "one": "def one(shape): return None",
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "own.py").write_text("import keras\n" + "\n".join(FILES.values()) + "\n")
    return folder


def test_a_model_of_ones_own_is_rebuilt_from_the_saved_folder(code: Path, zoo: ModuleType, tmp_path: Path) -> None:
    own = card("own.py:build", (5,))
    model, rows = zoo.build_network(own, model_code=code), np.ones((2, 5), np.uint8)
    zoo.save_model(tmp_path / "model", model, own, code)
    (code / "own.py").unlink()
    np.testing.assert_array_equal(np.asarray(zoo.load_model(tmp_path / "model")[0](rows)), np.asarray(model(rows)))


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("nonsense", "'nonsense' is not known: choose mlp, resnet, resnet50, or FILE.py:FUNCTION in model_code"),
        ("other.py:build", "there is no other.py in .*, which holds own.py"),
        ("own.py:absent", "has no function or class absent; it has build, shape, nothing, broken, one"),
        ("own.py:number", "has no function or class number"),
        ("own.py:shape", "gives outputs of shape .None, 4.; with 3 classes it has to be .None, 3."),
        ("own.py:nothing", "nothing returned NoneType; it has to return a keras.Model"),
        ("own.py:broken", "broken.*raised KeyError: 'why'"),
        ("own.py:one", "one.*raised TypeError"),
    ],
)
def test_what_is_wrong_with_the_users_function_is_said(
    architecture: str, message: str, code: Path, zoo: ModuleType
) -> None:
    with pytest.raises(Refusal, match=message):
        zoo.build_network(card(architecture, (5,)), model_code=code)


def test_numbers_far_from_0_are_normalised_before_they_get_16_bits(zoo: ModuleType) -> None:
    years = np.arange(2017, 2024, dtype="float32")[:, None]
    table = ModelCard("mlp", (1,), "float32", ("a", "b"), (2020.0,), (2.0,), framework="keras")
    outputs = np.asarray(zoo.build_network(table, "mixed_bfloat16")(years))
    assert len(np.unique(outputs, axis=0)) == len(years), "in bfloat16 these years are two"
