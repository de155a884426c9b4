"""Published weights as the first ones of a training: names and shapes, the normalisation, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from shared.checkpoint.reading import check_same_settings
from shared.data import Array, Dataset, Index, Statistics
from shared.data.write import write_index, write_shard
from shared.distributed import Refusal, World, init
from shared.models import ModelCard, build, build_network
from shared.models.initial import published_file
from shared.models.package import from_card, load_model, save_model
from shared.models.published import CLASSIFIERS, read_published
from shared.models.standard_vit import StandardViT, resize_positions
from shared.settings.command_line import read_settings
from shared.settings.network import NetworkSettings
from shared.settings.trainer import RowsTrainerSettings
from shared.training.core.position import plan_checkpoints
from shared.training.torch.initial import take_first_weights
from tests.components.launched import launched
from tests.components.training import weights
from tests.helpers import finish

CARD = ModelCard("vit_small_patch16", (32, 32, 3), "uint8", tuple("01234"), (90.0,) * 3, (60.0,) * 3)


LAYER = {
    "norm1.": "norm1.",
    "attn.qkv.": "self_attn.in_proj_",
    "attn.proj.": "self_attn.out_proj.",
    "norm2.": "norm2.",
    "mlp.fc1.": "linear1.",
    "mlp.fc2.": "linear2.",
}
"""timm's names of a block, and those of torch's own encoder layer."""


def test_a_vision_transformer_computes_what_torchs_own_layers_do() -> None:
    net = StandardViT((3, 48, 32), 5, 32, 2, heads=2).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.3)
    images, state = torch.randn(3, 3, 48, 32, dtype=torch.float64), net.state_dict()
    layer = nn.TransformerEncoderLayer(32, 2, 128, 0, functional.gelu, 1e-6, batch_first=True, norm_first=True).double()
    patches = functional.conv2d(images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=16)
    x = torch.cat([state["cls_token"].repeat(3, 1, 1), patches.flatten(2).transpose(1, 2)], 1) + state["pos_embed"]
    for block in range(2):
        names = {ours + kind: theirs + kind for ours, theirs in LAYER.items() for kind in ("weight", "bias")}
        layer.load_state_dict({theirs: state[f"blocks.{block}.{ours}"] for ours, theirs in names.items()})
        x = layer(x)
    normed = functional.layer_norm(x[:, 0], (32,), state["norm.weight"], state["norm.bias"], 1e-6)
    logits = functional.linear(normed, state["head.weight"], state["head.bias"])
    assert torch.allclose(net(images), logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", CLASSIFIERS)
def test_networks_have_as_many_weights_as_the_published_ones(architecture: str) -> None:
    """Numbers of parameters for 1,000 classes: torchvision's documentation; timm's for `vit_*_patch16_224`."""
    millions = {"resnet18": 11.689512, "resnet34": 21.797672, "resnet50": 25.557032}
    millions |= {"vit_small_patch16": 22.050664, "vit_base_patch16": 86.567656}
    with torch.device("meta"):
        net = build_network(architecture, (224, 224, 3), 1000)
    assert sum(parameter.numel() for parameter in net.parameters()) == round(1e6 * millions[architecture])
    assert f"{CLASSIFIERS[architecture]}.weight" in net.state_dict()


def test_positions_of_other_sizes_are_scaled_and_the_class_token_keeps_its_own() -> None:
    row, column = torch.meshgrid(torch.arange(14.0), torch.arange(14.0), indexing="ij")
    positions = torch.stack([row.flatten(), column.flatten()], -1)[None]
    positions = torch.cat([torch.full((1, 1, 2), 7.0), positions], 1)
    assert resize_positions(positions, (14, 14)) is positions
    found = resize_positions(positions, (28, 7))
    assert found[0, 0].tolist() == [7.0, 7.0]
    grid = found[0, 1:].reshape(28, 7, 2)
    # A plane stays one away from the edges; the centre of a new patch lies where it lies in the picture.
    assert torch.allclose(grid[6:-6, :, 0], (torch.arange(6.0, 22.0)[:, None] - 0.5) / 2, atol=1e-4)
    assert torch.allclose(grid[:, 2:-2, 1], 2 * torch.arange(2.0, 5.0) + 0.5, atol=1e-4)
    with pytest.raises(Refusal, match="not of a square of patches and one class token"):
        resize_positions(torch.zeros(1, 6, 2), (2, 2))


SMALL = (
    "from shared.models import build, standard_vit; build.ZOO = {**build.ZOO, "
    "'vit_small_patch16': lambda shape, outputs: standard_vit.StandardViT(shape, outputs, 32, 2, heads=2)}"
)
"""Makes vit_small_patch16 smaller in a process."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as timm has it on the hub, for 64 x 64 pixels and 7 classes."""
    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(3)
    net = StandardViT((3, 64, 64), 7, 32, 2, heads=2)
    save_file(net.state_dict(), folder / "model.safetensors")
    torch.save({"state_dict": {f"module.{name}": one for name, one in net.state_dict().items()}}, folder / "model.pth")
    return folder


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of one, in which vit_small_patch16 is smaller."""
    monkeypatch.setattr(build, "ZOO", build.ZOO)
    exec(SMALL, {})  # noqa: S102
    with init() as alone:
        yield alone


def begin(world: World, card: ModelCard, place: Path, normalization: str = "auto") -> tuple[nn.Module, ModelCard]:
    net = build_network(card.architecture, card.input_shape, card.outputs)
    network = NetworkSettings(initial_weights=place, normalization=normalization)  # type: ignore[arg-type]
    return net, take_first_weights(network, net, card, world)


def test_a_training_has_the_weights_of_the_file_and_a_new_last_layer(
    world: World, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = load_file(published / "model.safetensors")
    for place in (published, published / "model.pth"):
        net, card = begin(world, CARD, place)
        state = net.state_dict()
        other = {"head.weight", "head.bias", "pos_embed"}
        assert all(torch.equal(state[name], file[name]) for name in file.keys() - other)
        assert torch.equal(state["pos_embed"], resize_positions(file["pos_embed"], (2, 2)))
        assert state["head.weight"].shape == (5, 32)
        assert card.mean == card.std == (127.5,) * 3
    assert "new: head, for 5 outputs (the file's has 7)" in "".join(capsys.readouterr())
    net, _ = begin(world, replace(CARD, classes=tuple("0123456")), published)
    assert torch.equal(net.state_dict()["head.weight"], file["head.weight"])
    assert "its head too: the data's 7 classes have to be those, in the same order" in "".join(capsys.readouterr())


def test_the_normalisation_is_that_of_the_weights_and_goes_into_the_saved_model(
    world: World, published: Path, tmp_path: Path
) -> None:
    imagenet = (tuple(255 * one for one in (0.485, 0.456, 0.406)), tuple(255 * one for one in (0.229, 0.224, 0.225)))
    _, card = begin(world, CARD, published, "imagenet")
    assert (card.mean, card.std) == imagenet
    _, card = begin(world, CARD, published, "data")
    assert (card.mean, card.std) == (CARD.mean, CARD.std)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "model.safetensors").symlink_to(published / "model.safetensors")
    said = {"architecture": "deit", "pretrained_cfg": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
    (tmp_path / "hub" / "config.json").write_text(json.dumps(said))
    _, card = begin(world, CARD, tmp_path / "hub")
    assert (card.mean, card.std) == imagenet
    small = replace(card, architecture="resnet")
    save_model(tmp_path / "model", from_card(small), small)
    loaded, _ = load_model(tmp_path / "model")
    assert loaded.mean.tolist() == pytest.approx(imagenet[0])
    assert loaded.std.tolist() == pytest.approx(imagenet[1])
    with pytest.raises(Refusal, match=r"normalization auto is for pictures of 3 channels of bytes \(uint8\)"):
        begin(world, replace(CARD, input_dtype="float32"), published)


class Stranger:
    pass


def test_what_does_not_fit_is_named(world: World, published: Path, tmp_path: Path) -> None:
    with pytest.raises(
        Refusal,
        match=r"does not fit resnet18: bn1\.bias none here \(64,\); .* and \d+ more\. Give weights of resnet18 from",
    ):
        begin(world, replace(CARD, architecture="resnet18"), published)
    with pytest.raises(Refusal, match=r"initial_weights are for the architectures resnet18, .* not for vit_s"):
        begin(world, replace(CARD, architecture="vit_s"), published)
    with pytest.raises(Refusal, match="of the data have 1: prepare the data with color rgb"):
        begin(world, replace(CARD, input_shape=(32, 32, 1), mean=(1.0,), std=(1.0,)), published)
    with torch.device("meta"):
        large = build_network("resnet18", (96, 96, 3), 5).state_dict()
    save_file({name: torch.zeros(tensor.shape) for name, tensor in large.items()}, tmp_path / "large.safetensors")
    with pytest.raises(Refusal, match=r"another first convolution: prepare the data with image"):
        begin(world, replace(CARD, architecture="resnet18"), tmp_path / "large.safetensors")


@pytest.mark.filterwarnings("ignore")  # torch's own, about the protocol of what is damaged
def test_a_damaged_file_is_refused_or_read(tmp_path: Path) -> None:
    """The reader of torch ends with an IndexError, a KeyError or an AssertionError as well as with its own."""
    file, refused = tmp_path / "weights.pth", 0
    torch.save({"a": torch.zeros(3)}, file, _use_new_zipfile_serialization=False)
    whole = file.read_bytes()
    for place in range(0, 200, 2):
        file.write_bytes(whole[:place] + b"\0" + whole[place + 1 :])
        try:
            read_published(file)
        except Refusal:
            refused += 1
    assert refused > 30


def test_a_file_that_holds_more_than_tensors_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "whole.pth"
    torch.save({"model": Stranger()}, file)
    with pytest.raises(Refusal, match=r"is not read: it names \S*\.Stranger\. Give a"):
        read_published(file)
    torch.save({"epoch": 3}, file)
    with pytest.raises(Refusal, match="holds a dict and no tensors by name"):
        read_published(tmp_path)
    file.write_bytes(b"nothing")
    with pytest.raises(Refusal, match="is not read: it is no whole file of"):
        read_published(file)
    (tmp_path / "other.pth").touch()
    with pytest.raises(Refusal, match=r"or a folder with one: other\.pth, whole\.pth"):
        published_file(tmp_path)
    (tmp_path / "one.safetensors").touch()
    assert published_file(tmp_path).name == "one.safetensors"
    with pytest.raises(Refusal, match="cannot be read"):
        read_published(tmp_path)
    with pytest.raises(Refusal, match="or a folder with one: no such file"):
        published_file(tmp_path / "none")


def write_colours(folder: Path) -> Path:
    """Pictures of 32 x 32 pixels, of one of three colours each."""
    arrays = {"x": Array((32, 32, 3), "uint8"), "y": Array((), "int64")}
    random, shards = np.random.default_rng(0), {}
    for split, count in (("train", 24), ("validation", 12), ("test", 12)):
        y = np.arange(count) % 3
        x = random.integers(0, 100, (count, 32, 32, 3)).astype("uint8")
        x[np.arange(count), :, :, y] += 120
        shard = write_shard(folder, split, 0, rows=count, arrays=arrays, chunks=[{"x": x, "y": y}])
        shards[split] = (shard,)
    statistics = Statistics((90.0,) * 3, (60.0,) * 3)
    write_index(folder, Index("classification", arrays, ("red", "green", "blue"), statistics, shards))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "trainer",
    ["train_ddp", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("train_horovod", "train_torchrun"))],
)
def test_two_ranks_train_on_from_published_weights(trainer: str, published: Path, tmp_path: Path) -> None:
    given: dict[str, object] = {"architecture": "vit_small_patch16", "initial_weights": published, "epochs": 1}
    given |= {"batch_size": 8, "learning_rate": 0, "optimizer": "sgd", "weight_decay": 0}
    with launched(trainer, write_colours(tmp_path / "colours"), tmp_path, given, before=SMALL) as ranks:
        results = finish(ranks)
    said = f"begins with the weights of {published}/model.safetensors; new: head, for 3 outputs"
    assert sum(result.stdout.count(said) for result in results) == 1
    trained, file = weights(tmp_path), load_file(published / "model.safetensors")
    assert torch.equal(trained["net.blocks.1.mlp.fc2.weight"], file["blocks.1.mlp.fc2.weight"])
    assert trained["mean"].tolist() == [127.5] * 3


def test_other_first_weights_are_another_training(world: World, published: Path, tmp_path: Path) -> None:
    data = Dataset.open(write_colours(tmp_path / "colours"))
    card = ModelCard("mlp", (32, 32, 3), "uint8", ("red", "green", "blue"), (90.0,) * 3, (60.0,) * 3)
    for name in ("one", "other"):
        save_model(tmp_path / name, from_card(card), card)

    def identity(**network: object) -> dict[str, object]:
        words = [word for name in ("data", "model", "checkpoints", "metrics") for word in (f"--{name}", name)]
        words += [word for name, value in network.items() for word in ("--" + name.replace("_", "-"), str(value))]
        return plan_checkpoints(read_settings(RowsTrainerSettings, words=words), data).identity

    first, none = identity(initial_model=tmp_path / "one"), identity()
    check_same_settings({"settings": none}, identity(), "step-1")
    (tmp_path / "one").rename(tmp_path / "moved")
    check_same_settings({"settings": first}, identity(initial_model=tmp_path / "moved"), "step-1")
    for now in (identity(initial_model=tmp_path / "other"), none):
        with pytest.raises(Refusal, match=r"another training: initial_model was 'sha256 .* and is now"):
            check_same_settings({"settings": first}, now, "step-1")
    with pytest.raises(Refusal, match="initial_weights was None and is now 'sha256"):
        check_same_settings({"settings": none}, identity(initial_weights=published), "step-1")
    with pytest.raises(Refusal, match="normalization was 'auto' and is now 'half'"):
        check_same_settings({"settings": none}, identity(normalization="half"), "step-1")
    both = NetworkSettings(initial_model=tmp_path / "other", initial_weights=published)
    with pytest.raises(Refusal, match="initial_model and initial_weights are both given"):
        take_first_weights(both, nn.Identity(), card, world)
