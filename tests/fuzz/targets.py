"""Every reader of what others may have written: each target writes seeds, and reads a mutant of them as a user would."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

EVENTS = ROOT / "tests/local/event_files"


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Attributes:
        seeds: writes sound files below a folder.
        read: reads them; what is wrong with them ends in an exit code, not in an exception.
        mutated: the files below the folder that are mutated, as a pattern.
    """

    seeds: Callable[[Path], None]
    read: Callable[[Path], None]
    mutated: str = "**/*"


def call_main(main: Callable[[], Any]) -> tuple[Any, str]:
    """Return the exit code of a command, and what it printed."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    text = said.getvalue()
    assert code in (0, 1, 2, None), f"exit code {code!r}: {text[-2000:]}"
    assert "Traceback (most recent call last)" not in text, text[-2000:]
    assert code != 2 or text.strip(), "exit code 2 without a word"
    return code, text


def run_allranks(*arguments: str) -> None:
    """Run the command line in this process."""
    from allranks.cli.main import main

    call_main(lambda: main(list(arguments)))


# YAML.


def _yaml_seeds(folder: Path) -> None:
    """Write the documents of tests/spec, and the library's, in one folder without folders."""
    from tests.spec.mutations import write_files

    write_files(folder)
    for path in (ROOT / "components").glob("*/component.yaml"):
        text = re.sub(r"^additional_includes:.*?(?=^\S)", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^code:.*$", "code: ./src", text, flags=re.MULTILINE)
        (folder / f"component_{path.parent.name}.yaml").write_text(text)
    for path in (ROOT / "pipelines").glob("*.yaml"):
        text = re.sub(r"\.\./components/(\w+)/component\.yaml", r"./component_\1.yaml", path.read_text())
        (folder / f"pipeline_{path.name}").write_text(text)


def _read_yaml(folder: Path) -> None:
    """Lint, plan and show the document that was mutated."""
    file = Path(f"{folder}.mutated").read_text()
    os.chdir(folder)
    before = _listing(folder)
    for command in (("lint", file), ("run", file, "--dry-run", "--json"), ("show", f"./{file}")):
        run_allranks(*command)
    assert _listing(folder) == before, "files that are new"


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if ".allranks" not in path.parts}


# Data sets.


def prepare(component: str, *arguments: str) -> Callable[[Path], None]:
    """Read by prepare_data or prepare_text, into a folder that then is a dataset or none."""

    def read(folder: Path) -> None:
        from shared.data import Dataset

        out = folder.parent / f"{folder.name}.out"
        sys.argv = [component, "--data", str(folder), "--output-data", str(out), *arguments]
        code, said = call_main(importlib.import_module(f"components.{component}.{component}").main)
        assert (out / "index.json").exists() == (not code), f"exit code {code}: {said[-500:]}"
        if not code:
            Dataset.open(out).verify()
        assert not [*out.rglob("*.part")], "left over"

    return read


def _dataset_seeds(folder: Path) -> None:
    sys.argv = ["prepare_data", "--output-data", str(folder), "--rows-per-shard", "700"]
    call_main(importlib.import_module("components.prepare_data.prepare_data").main)


def _read_dataset(folder: Path) -> None:
    from shared.data import Dataset
    from shared.distributed import Refusal

    with suppress(Refusal):
        data = Dataset.open(folder)
        data.verify()
        for split in ("train", "validation", "test"):
            rows = data.split(split)
            rows.take(range(min(rows.rows, 64)))


def _table(folder: Path) -> None:
    from tests.shared import samples

    images, labels = samples.digits()
    rows = images[:24].reshape(24, -1)[:, :12].astype(float)
    write = samples.write_csv if folder.name == "csv" else samples.write_parquet
    write(folder, rows, labels[:24])


def _images(folder: Path) -> None:
    """Write pictures of every format that is decoded."""
    from PIL import Image

    for number in range(3):
        for name in ("bmp", "gif", "jpg", "png", "ppm", "tif", "webp"):
            path = folder / str(number) / f"{name}.{name}"
            path.parent.mkdir(exist_ok=True)
            Image.effect_mandelbrot((16, 12), (-2, -1.5, 1, 1.5), 20 + number).convert("RGB").save(path)


def _texts(folder: Path) -> None:
    rows = [{"text": f"the {number}th text, of {'words ' * number}", "label": "ab"[number % 2]} for number in range(24)]
    for name, some in (("a", rows[:12]), ("b", rows[12:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))


def _tokenizer_seeds(folder: Path) -> None:
    from shared.data.text.tokens import train_subwords

    for name, text in train_subwords(["a few words of a few texts " * 5], 300).items():
        (folder / name).write_text(text)


def _read_tokenizer(folder: Path) -> None:
    from shared.data.text.tokens import SubwordTokens
    from shared.distributed import Refusal

    with suppress(Refusal):
        tokens = SubwordTokens.open(folder)
        tokens.encode(["a few words", ""])
        tokens.passages(["a few words " * 9], 16)


# Checkpoints and models.


def _checkpoint_seeds(folder: Path) -> None:
    """Write two checkpoints of one rank."""
    import numpy as np

    from shared.checkpoint.files import KeepRule, begin_folder, commit_checkpoint, rank_name
    from shared.checkpoint.tensor_file import FileSeal, ShardPart, write_tensor_file

    for step in (1, 2):
        place, name = begin_folder(folder, step), rank_name(0, "a", "safetensors")
        parts = [ShardPart(f"w{number}", np.full((4, 5), number, np.float32), (4, 5), (0, 0)) for number in range(3)]
        own = b'{"rng": [1, 2, 3]}'
        (place / rank_name(0, "a", "json")).write_bytes(own)
        files = {name: write_tensor_file(place / name, parts), rank_name(0, "a", "json"): FileSeal.of_bytes(own)}
        commit_checkpoint(folder, step, "a", '{"settings": {"epochs": 1}}', files, KeepRule())


def _read_checkpoint(folder: Path) -> None:
    """Resume from the newest checkpoint that is whole."""
    from shared.checkpoint.reading import CheckpointReader, check_same_settings, newest_valid_checkpoint
    from shared.checkpoint.tensor_file import DamageError
    from shared.distributed import Refusal

    path = newest_valid_checkpoint(folder)
    with suppress(DamageError, Refusal):
        reader = CheckpointReader(path) if path else None
        if reader is not None and path is not None:
            reader.own_state(0)
            check_same_settings(reader.state, {"epochs": 1}, path)
            whole = {f"w{number}": (4, 5) for number in range(3)}
            assert reader.shapes == whole, "a damaged checkpoint was taken for whole"


def _torch_model_seeds(folder: Path) -> None:
    import torch

    from shared.data import Dataset
    from shared.models.card import ModelCard
    from shared.models.package import from_card, save_model
    from tests.components.training import write_digits

    classes = Dataset.open(write_digits(folder / "data")).index.classes
    card = ModelCard("mlp", (8, 8, 1), "uint8", classes, (7.0,), (4.0,))
    torch.manual_seed(0)
    save_model(folder / "model", from_card(card), card)


def transformer_seeds(folder: Path) -> None:
    """Write a classifier in ``model``, as train_transformers saves it, and the data that it fits in ``data``."""
    from transformers import BertConfig, BertForSequenceClassification

    from shared.data import Dataset
    from shared.models.folder import HUGGINGFACE_NAME, INSIDE, begin_model
    from shared.models.transformers import finish_transformer
    from shared.training.transformers.start import card_of_transformer
    from tests.shared.samples import write_text_classification_dataset

    data = Dataset.open(write_text_classification_dataset(folder / "data", rows=(8, 4, 4)))
    sizes = {"vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    names = dict(enumerate(data.index.classes))
    config = BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=64, id2label=names, pad_token_id=256)
    net = BertForSequenceClassification(config)
    begin_model(folder / "model")
    net.save_pretrained(folder / "model" / INSIDE / HUGGINGFACE_NAME)
    finish_transformer(folder / "model", card_of_transformer(net, data), None)


def _read_model(folder: Path) -> None:
    """Take the model for the data as evaluate does, and predict two rows."""
    import torch

    from components.evaluate.evaluate import refuse_misfit
    from shared.data import Dataset
    from shared.distributed import Refusal
    from shared.models.predictor import load_predictor, read_card

    dataset, place = Dataset.open(folder / "data"), folder / "model"
    with suppress(Refusal):
        refuse_misfit(read_card(place), dataset.index, place)
        load_predictor(place, torch.device("cpu"))[0](dataset.split("test").take(range(2))["x"])


def _read_base(folder: Path) -> None:
    """Begin a training with the weights and the configuration in a folder of Hugging Face's."""
    from shared.data import Dataset
    from shared.distributed import Refusal
    from shared.settings.network import BaseModelSettings
    from shared.settings.training import PrecisionSettings
    from shared.training.transformers.start import make_base_model

    data, base = Dataset.open(folder / "data"), folder / "model/artifacts/model/huggingface"
    for settings in (
        BaseModelSettings(base_model=base, base_config=None),
        BaseModelSettings(base_model=None, base_config=base),
    ):
        with suppress(Refusal):
            make_base_model(settings, PrecisionSettings(), 0, data)


# Runs.

_RUN = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
jobs:
  train:
    type: command
    command: >-
      mkdir -p outputs ${{outputs.model}}; cp ${{inputs.events}}/* outputs; echo hello;
      echo '{"step": 1, "total": 2, "metrics": {"loss": 0.5}}' >> outputs/metrics.jsonl; echo 1 > ${{outputs.model}}/x
    environment: azureml:any@latest
    inputs: {events: {type: uri_folder, path: ./events}}
    outputs: {model: {type: uri_folder}}
  fail:
    type: command
    command: echo ${{inputs.model}}; exit 3
    environment: azureml:any@latest
    inputs: {model: "${{parent.jobs.train.outputs.model}}"}
"""


def _run_seeds(folder: Path) -> None:
    shutil.copytree(EVENTS / "keras/train", folder / "events")
    (folder / "p.yaml").write_text(_RUN)
    os.chdir(folder)
    for _ in range(2):
        run_allranks("run", "p.yaml")
    shutil.rmtree(folder / "events")
    (folder / "p.yaml").unlink()


def _read_runs(folder: Path) -> None:
    """List, show, compare and resume the runs, and look at them as the page of a run does."""
    from allranks.local.folders import RunsHome
    from allranks.local.logged import read_running_step, read_step_curves
    from allranks.local.tracking.reading import TrackingReader

    os.chdir(folder)
    names = sorted(path.name for path in (folder / ".allranks/runs").glob("*"))
    for command in (
        ("runs", "list"),
        ("runs", "show", "latest", "--json"),
        ("runs", "logs", "latest"),
        ("runs", "compare", *names[:2]),
        ("run", "--resume", "latest", "--dry-run"),
    ):
        run_allranks(*command)
    home = RunsHome(folder / ".allranks")
    with TrackingReader(home) as reader:
        for run in home.all_runs():
            json.dumps(read_running_step(run, "train", reader), allow_nan=False)
            read_step_curves(run, "train", reader)
        for run_id in reader.run_ids():
            reader.run(run_id)


_CLASSES = ("--task", "text_classification", "--sequence-length", "32")
_CSV = ("--dataset", "csv", "--on-missing", "impute", "--on-bad-file", "skip")
TARGETS = {
    "yaml": Target(_yaml_seeds, _read_yaml, "*.yaml"),
    "image_folder": Target(_images, prepare("prepare_data", "--dataset", "image_folder", "--image-size", "8")),
    "csv": Target(_table, prepare("prepare_data", *_CSV)),
    "parquet": Target(_table, prepare("prepare_data", "--dataset", "parquet")),
    "text": Target(_texts, prepare("prepare_text", "--dataset", "jsonl", *_CLASSES)),
    "tokenizer": Target(_tokenizer_seeds, _read_tokenizer),
    "dataset": Target(_dataset_seeds, _read_dataset),
    "checkpoint": Target(_checkpoint_seeds, _read_checkpoint),
    "torch_model": Target(_torch_model_seeds, _read_model, "model/artifacts/model/[cw]*.*"),
    "transformers_model": Target(transformer_seeds, _read_model, "model/artifacts/**/*.[js]*"),
    "base_model": Target(transformer_seeds, _read_base, "model/artifacts/model/huggingface/*"),
    "runs": Target(_run_seeds, _read_runs, ".allranks/**/*"),
}
"""The readers by name."""
