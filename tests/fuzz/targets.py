"""What is fuzzed: each target writes seeds, and reads what has become of them as a user would."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

_ACCEPTED_CODES = (0, 1, 2, None)


class HalfWrittenError(Exception):
    """What was written is neither whole nor absent, or something was written that should not be."""


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    Attributes:
        group: ``yaml`` or ``data``.
        seeds: writes sound files below a folder.
        read: reads them; what is wrong with them ends in an exit code, not in an exception.
        mutated: the files below the folder that are mutated, as a pattern.
        imports: modules that are imported once, before mutants are forked.
    """

    name: str
    group: str
    seeds: Callable[[Path], None]
    read: Callable[[Path], None]
    mutated: str = "**/*"
    imports: tuple[str, ...] = ()


def call_main(main: Callable[[], Any]) -> tuple[Any, str]:
    """The exit code of a command, and what it printed."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    if code not in _ACCEPTED_CODES or "Traceback (most recent call last)" in said.getvalue():
        raise AssertionError(f"exit code {code!r}: {said.getvalue()[-2000:]}")
    return code, said.getvalue()


def run_allranks(*arguments: str) -> int:
    """The exit code of the command line."""
    from allranks.cli.main import main

    code, said = call_main(lambda: main(list(arguments)))
    if code == 2 and "error: " not in said and '"error"' not in said and not said.strip():
        raise AssertionError(f"exit code 2 without a word: {arguments}")
    return int(code or 0)


# YAML.


def _yaml_seeds(folder: Path) -> None:
    from tests.fuzz.yaml_seeds import write_yaml_seeds

    write_yaml_seeds(folder)


def _read_yaml(folder: Path) -> None:
    """Lint, show and plan what was mutated: the file with the mark."""
    file = (folder / "MUTATED").read_text()
    os.chdir(folder)
    before = _listing(folder)
    for command in (("lint", file), ("run", file, "--dry-run", "--json"), ("show", f"./{file}")):
        run_allranks(*command)
    if _listing(folder) != before:
        raise HalfWrittenError(f"files that are new: {_listing(folder) - before}")


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if ".allranks" not in path.parts}


# Data sets.


def _component(name: str) -> Callable[[], None]:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    main: Callable[[], None] = importlib.import_module(f"components.{name}.{name}").main
    return main


def prepare(component: str, *arguments: str) -> Callable[[Path], None]:
    """Read by prepare_data or prepare_text, into a folder that then is a dataset or none."""

    def read(folder: Path) -> None:
        from shared.data import Dataset

        out = folder.parent / f"{folder.name}.out"
        sys.argv = [component, "--data", str(folder), "--output-data", str(out), *arguments]
        code, said = call_main(_component(component))
        if (out / "index.json").exists():
            if code:
                raise HalfWrittenError(f"exit code {code}, and an index: {said[-500:]}")
            Dataset.open(out).verify()
        elif not code:
            raise HalfWrittenError(f"exit code 0, and no index: {said[-500:]}")
        if left := [*out.rglob("*.part")] if out.is_dir() else []:
            raise HalfWrittenError(f"left over: {left}")

    return read


def _dataset_seeds(folder: Path) -> None:
    sys.argv = ["prepare_data", "--output-data", str(folder), "--rows-per-shard", "700"]
    call_main(_component("prepare_data"))


def _read_dataset(folder: Path) -> None:
    from shared.data import Dataset
    from shared.distributed import Refusal

    try:
        data = Dataset.open(folder)
        data.verify()
        for split in ("train", "validation", "test"):
            rows = data.split(split)
            rows.take(range(min(rows.rows, 64)))
    except Refusal:
        pass


# Checkpoints and models.


def checkpoint_seeds(folder: Path) -> None:
    """Two checkpoints of one rank."""
    import numpy as np

    from shared.checkpoint.files import KeepRule, begin_folder, commit_checkpoint, rank_name
    from shared.checkpoint.pieces import ShardPart
    from shared.checkpoint.seal import FileSeal
    from shared.checkpoint.tensor_file import write_tensor_file

    for step in (1, 2):
        place, name = begin_folder(folder, step), rank_name(0, "a", "safetensors")
        parts = [ShardPart(f"w{number}", np.full((4, 5), number, np.float32), (4, 5), (0, 0)) for number in range(3)]
        own = b'{"rng": [1, 2, 3]}'
        (place / rank_name(0, "a", "json")).write_bytes(own)
        files = {name: write_tensor_file(place / name, parts), rank_name(0, "a", "json"): FileSeal.of_bytes(own)}
        commit_checkpoint(folder, step, "a", '{"settings": {"epochs": 1}}', files, KeepRule())


def read_checkpoint(folder: Path) -> None:
    """Go on from the newest one that is whole."""
    from shared.checkpoint.choose import check_same_settings, newest_valid_checkpoint
    from shared.checkpoint.reading import CheckpointReader
    from shared.checkpoint.seal import DamageError
    from shared.distributed import Refusal

    with redirect_stderr(io.StringIO()):
        path = newest_valid_checkpoint(folder)
    if path is None:
        return
    try:
        reader = CheckpointReader(path)
        reader.own_state(0)
        check_same_settings(reader.state, {"epochs": 1}, path)
        for name, shape in reader.shapes.items():
            if shape != (4, 5) or name not in ("w0", "w1", "w2"):
                raise HalfWrittenError(f"a damaged checkpoint was taken for whole: {name} {shape}")
    except (DamageError, Refusal):
        pass


def _model_seeds(folder: Path) -> None:
    import torch

    from shared.models.card import ModelCard
    from shared.models.package import from_card, save_model

    card = ModelCard("mlp", (8, 8, 1), "uint8", tuple("0123456789"), (7.0,), (4.0,))
    torch.manual_seed(0)
    save_model(folder, from_card(card), card)


def _read_model(folder: Path) -> None:
    from shared.distributed import Refusal
    from shared.models.package import load_model

    with suppress(Refusal):
        load_model(folder)


# Runs.

_RUN = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
jobs:
  train:
    type: command
    command: >-
      echo '{"step": 1, "total": 2, "metrics": {"loss": 0.5}}' >> metrics.jsonl; echo hello; mkdir -p ${{outputs.model}}
    environment: azureml:any@latest
    outputs: {model: {type: uri_folder}}
  fail:
    type: command
    command: echo ${{inputs.model}}; exit 3
    environment: azureml:any@latest
    inputs: {model: "${{parent.jobs.train.outputs.model}}"}
"""


def _run_seeds(folder: Path) -> None:
    (folder / "p.yaml").write_text(_RUN)
    os.chdir(folder)
    for _ in range(2):
        run_allranks("run", "p.yaml")
    (folder / "p.yaml").unlink()


def _read_runs(folder: Path) -> None:
    os.chdir(folder)
    for command in (
        ("runs", "list"),
        ("runs", "list", "--json"),
        ("runs", "show", "latest"),
        ("runs", "show", "latest", "--json"),
        ("runs", "logs", "latest"),
        ("run", "--resume", "latest", "--dry-run"),
    ):
        run_allranks(*command)


# Variables of launchers.


def _environment_seeds(folder: Path) -> None:
    import json

    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}}
    common = {"AZUREML_RUN_ID": "x", "AZ_BATCHAI_JOB_MASTER_NODE_IP": "127.0.0.1"}
    texts = {
        "tensorflow": {**common, "TF_CONFIG": json.dumps(cluster)},
        "torch": {
            **common,
            "RANK": "1",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "NODE_RANK": "0",
        }
        | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6105", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2"},
        "mpi": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
        | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "AZ_BATCH_MASTER_NODE": "127.0.0.1:6105", **common},
        "slurm": {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NNODES": "2"}
        | {
            "SLURM_NODEID": "0",
            "SLURM_STEP_NODELIST": "node[1-2]",
            "SLURM_JOB_ID": "5",
            "SLURM_TASKS_PER_NODE": "2(x2)",
        },
    }
    for name, variables in texts.items():
        (folder / f"{name}.json").write_text(json.dumps(variables, indent=1))


def _as_variable(value: object) -> str:
    """Text as the system has it: no NUL, and no halves of characters."""
    return str(value).encode(errors="replace").decode().replace("\0", "")


def _read_environment(folder: Path) -> None:
    import json

    from shared.distributed.errors import LaunchError
    from shared.distributed.launch import detect

    for path in sorted(folder.glob("*.json")):
        if not path.is_file():  # what is read here are variables, which no pipe holds up
            continue
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        pairs = found.items() if isinstance(found, dict) else ()
        variables = {_as_variable(name): _as_variable(value) for name, value in pairs}
        with suppress(LaunchError):
            detect(variables)


def _images(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from tests.shared import samples

        images, labels = samples.digits()
        images, labels = images[:24], labels[:24]
        if kind == "image_folder":
            samples.write_image_folder(folder, images, labels)
        else:
            rows = images if kind == "npy" else images.reshape(24, -1)[:, :12].astype(float)
            {"npy": samples.write_npy, "csv": samples.write_csv, "parquet": samples.write_parquet}[kind](
                folder, rows, labels
            )

    return write


def _more_images(folder: Path) -> None:
    """Every format that is decoded, and pictures of more kinds than one."""
    from PIL import Image

    for number in range(3):
        for name in ("bmp", "gif", "jpg", "png", "ppm", "tif", "webp"):
            path = folder / str(number) / f"{name}.{name}"
            path.parent.mkdir(exist_ok=True)
            Image.effect_mandelbrot((16, 12), (-2, -1.5, 1, 1.5), 20 + number).convert("RGB").save(path)


def _texts(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        import gzip
        import json

        import pyarrow as pa
        from pyarrow import parquet

        rows = [
            {"text": f"the {number}th text, of {'words ' * number}", "label": "ab"[number % 2]} for number in range(24)
        ]
        if kind == "files":
            for number, row in enumerate(rows):
                path = folder / row["label"] / f"{number}.txt"
                path.parent.mkdir(exist_ok=True)
                path.write_text(row["text"])
        elif kind == "jsonl":
            (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:12]))
            (folder / "b.jsonl.gz").write_bytes(
                gzip.compress("".join(json.dumps(row) + "\n" for row in rows[12:]).encode())
            )
        elif kind == "csv":
            (folder / "a.csv").write_text("text,label\n" + "".join(f'"{row["text"]}",{row["label"]}\n' for row in rows))
        else:
            parquet.write_table(pa.table({key: [row[key] for row in rows] for key in rows[0]}), folder / "a.parquet")

    return write


def _tokenizer_seeds(folder: Path) -> None:
    from shared.data.text.tokens import train_subwords

    for name, text in train_subwords(["a few words of a few texts " * 5], 300).items():
        (folder / name).write_text(text)


def _read_tokenizer(folder: Path) -> None:
    from shared.data.text.tokens import SubwordTokens
    from shared.distributed import Refusal

    try:
        tokens = SubwordTokens.open(folder)
        tokens.encode(["a few words", ""])
        tokens.passages(["a few words " * 9], 16)
    except Refusal:
        pass


_TABLE = ("--on-missing", "impute", "--on-bad-file", "skip")
_CLASSES = ("--task", "text_classification", "--sequence-length", "32")
_JSON_FILES = "**/*.json*"

TARGETS = {
    target.name: target
    for target in (
        Target("yaml", "yaml", _yaml_seeds, _read_yaml, "*.yaml"),
        Target("image_folder", "data", _more_images, prepare("prepare_data", "--dataset", "image_folder", "--image-size", "8")),
        Target("encoded_images", "data", _more_images, prepare("prepare_data", "--dataset", "image_folder", "--image-size", "8", "--store", "encoded", "--on-bad-file", "skip")),
        Target("npy", "data", _images("npy"), prepare("prepare_data", "--dataset", "npy")),
        Target("csv", "data", _images("csv"), prepare("prepare_data", "--dataset", "csv", *_TABLE)),
        Target("parquet", "data", _images("parquet"), prepare("prepare_data", "--dataset", "parquet")),
        Target("text_files", "data", _texts("files"), prepare("prepare_text", "--dataset", "files", *_CLASSES)),
        Target("text_jsonl", "data", _texts("jsonl"), prepare("prepare_text", "--dataset", "jsonl", *_CLASSES)),
        Target("text_csv", "data", _texts("csv"), prepare("prepare_text", "--dataset", "csv", "--on-bad-file", "skip")),
        Target("text_parquet", "data", _texts("parquet"), prepare("prepare_text", "--dataset", "parquet", *_CLASSES)),
        Target("tokenizer", "data", _tokenizer_seeds, _read_tokenizer),
        Target("dataset", "data", _dataset_seeds, _read_dataset),
        Target("checkpoint", "data", checkpoint_seeds, read_checkpoint),
        Target("model", "data", _model_seeds, _read_model, "artifacts/model/[cw]*.*"),
        Target("runs", "data", _run_seeds, _read_runs, ".allranks/runs/*/**/*.json*"),
        Target("environment", "data", _environment_seeds, _read_environment),
    )
}  # fmt: skip
"""Every reader of what others may have written, by name."""
