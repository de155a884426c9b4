"""Tables with categories and missing values: prepare_data, train_ddp and evaluate against scikit-learn's pipelines.

    python benchmarks/table_accuracy.py

Each seed draws a table of 6,000 rows as people have them (five categories of 2 to 40 values, four numbers, a fifth of a
column empty, labels in words) and its splits. scikit-learn has the same rows of train and test, one-hot categories,
filled and standardised numbers with indicators; its perceptron has the layers, epochs and batches of train_ddp.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from side_by_side import keep
from sklearn.base import ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from shared.data.sources import SOURCES, SourceRequest
from shared.data.write.shards import plan_items

ROOT = Path(__file__).parents[1]
SEEDS = (0, 1, 2)
ROWS = 6000
EPOCHS, BATCH = 10, 64
NUMBERS = ["age", "income", "debt", "visits"]
TEXTS = ["sex", "region", "job", "plan", "town"]


def main() -> None:
    """Train, and keep the accuracies."""
    table: dict[str, list[float]] = {"allranks": [], "perceptron of scikit-learn": [], "logistic regression": []}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            frame = draw_table(seed)
            (folder / "table").mkdir()
            frame.to_csv(folder / "table" / "t.csv", index=False)
            table["allranks"].append(our_accuracy(folder, seed))
            train, test = same_splits(folder, frame, seed)
            perceptron = MLPClassifier((256, 256), max_iter=EPOCHS, batch_size=BATCH, random_state=seed)
            table["perceptron of scikit-learn"].append(their_accuracy(perceptron, train, test))
            table["logistic regression"].append(their_accuracy(LogisticRegression(max_iter=2000), train, test))
    keep("table_accuracy", [], test_accuracies={name: [round(v, 4) for v in found] for name, found in table.items()})


def draw_table(seed: int) -> pd.DataFrame:
    """A label that depends on categories, on numbers, on a pair of them, and on what is missing."""
    random = np.random.default_rng(seed)
    sizes = dict(zip(TEXTS, (2, 5, 12, 3, 40), strict=True))
    codes = {name: random.integers(size, size=ROWS) for name, size in sizes.items()}
    x = random.normal(size=(ROWS, len(NUMBERS)))
    score = sum(random.normal(size=size)[codes[name]] for name, size in sizes.items()) + x @ random.normal(size=4)
    score = score + 1.2 * x[:, 0] * (codes["sex"] == 1) + random.normal(0, 0.5, ROWS)
    frame = pd.DataFrame({name: [f"{name} {code}" for code in found] for name, found in codes.items()})
    frame[NUMBERS] = (x * [12, 9000, 4000, 3] + [40, 30000, 5000, 10]).round(2)
    for column, share in (("age", 0.2), ("debt", 0.05), ("job", 0.1)):
        frame.loc[random.random(ROWS) < share, column] = None
    frame["label"] = np.where(score > np.median(score), "stays", "leaves")
    return frame


def our_accuracy(folder: Path, seed: int) -> float:
    """Test accuracy of the components, one after another."""
    seeded = ["--seed", str(seed)]
    table = ["--dataset", "csv", "--data", "table", "--target", "label", "--on-missing", "impute"]
    run(folder, "prepare_data", *table, *seeded, "--output-data", "data")
    ports = ["--data", "data", "--model", "model", "--checkpoints", "checkpoints", "--metrics", "metrics"]
    run(folder, "train_ddp", *ports, *seeded, "--epochs", str(EPOCHS), "--batch-size", str(BATCH))
    run(folder, "evaluate", "--data", "data", "--model", "model", "--report", "report")
    return float(json.loads((folder / "report" / "metrics.json").read_text())["accuracy"])


def run(folder: Path, name: str, *arguments: str) -> None:
    """Run a component on one rank."""
    script = ROOT / "components" / name / f"{name}.py"
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(script), *arguments], cwd=folder, env=environ, check=True, capture_output=True)


def same_splits(folder: Path, frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of train and test, as prepare_data divides them."""
    source = SOURCES["csv"](SourceRequest("csv", folder / "table", target="label", impute_missing=True))
    plan = plan_items(source, validation_fraction=0.1, test_fraction=0.2, seed=seed, rows_per_shard=None)
    return frame.iloc[plan.items["train"][:]], frame.iloc[plan.items["test"][:]]


def their_accuracy(model: ClassifierMixin, train: pd.DataFrame, test: pd.DataFrame) -> float:
    """Test accuracy of a model behind scikit-learn's own encoding."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value=""), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    whole = make_pipeline(ColumnTransformer([("numbers", numbers, NUMBERS), ("texts", texts, TEXTS)]), model)
    whole.fit(train.drop(columns="label"), train["label"])
    return float(whole.score(test.drop(columns="label"), test["label"]))


if __name__ == "__main__":
    main()
