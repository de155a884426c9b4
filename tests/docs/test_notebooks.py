"""The notebooks of examples/, run as they are by a real kernel, and what a kernel shows of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT
from tests.waiting import TIMEOUT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of runs for all, so that the data is prepared once."""
    return tmp_path_factory.mktemp("notebooks")


def execute(notebook: Any, folder: Path, **options: Any) -> Any:
    """The notebook with what its cells have given."""
    from nbclient import NotebookClient  # here, for each worker of the tests would import it

    client = NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources={"metadata": {"path": str(folder)}}, **options)  # fmt: skip
    client.execute(env={**os.environ, "MPLBACKEND": "agg", "DISPLAY": ""})
    return notebook


def of_cells(*cells: str) -> Any:
    from nbformat.v4 import new_code_cell, new_notebook

    return new_notebook(cells=list(map(new_code_cell, cells)))


def outputs(notebook: Any, kind: str, form: str) -> Iterator[str]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == kind:
                yield output.data.get(form, "") if "data" in output else output[form]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == "first_run" else pytest.mark.exhaustive)
        for path in NOTEBOOKS
    ],
)
def test_every_notebook_runs_from_its_first_cell_to_its_last(path: Path, folder: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "keep it without outputs"
    execute(notebook, folder)
    assert any("✓ succeeded" in page for page in outputs(notebook, "display_data", "text/html"))


@pytest.mark.slow
def test_a_mistake_and_a_failed_step_are_one_message_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "type: pipeline\njobs:\n  one:\n    type: command\n    command: echo the reason; exit 3\n    environment: {image: python}\n"
    )
    cells = [
        "import allranks",
        "allranks.run('image_classificaton')",
        "run = allranks.run('pipeline.yaml')",
        "run",
        "run.logs('one', 7)",
        "allranks.run('pipeline.yaml', check=True)",
    ]
    notebook = execute(of_cells(*cells), tmp_path, allow_errors=True)
    mistake, rank, failed = ("\n".join(one) for one in outputs(notebook, "error", "traceback"))
    assert mistake.startswith("error: 'image_classificaton' is no file")
    assert rank == "error: step 'one' has no rank 7; there are: 0."
    assert "step one: the command ended with exit code 3" in failed
    assert "| the reason" in failed
    for said in (mistake, rank, failed):
        assert "Traceback" not in said
    (shown,) = outputs(notebook, "execute_result", "text/html")
    assert "✗ failed" in shown
    assert "| the reason" in shown


@pytest.mark.slow
def test_a_script_in_a_notebook_shows_what_its_ranks_print_and_the_view(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint('this is rank', os.environ['RANK'])\n")
    cell = "import allranks\nrun = allranks.run('train.py', scale='1x2')"
    notebook = execute(of_cells(cell), tmp_path)
    said = "".join(outputs(notebook, "stream", "text"))
    assert [f"[rank {rank}] this is rank {rank}" in said for rank in range(2)] == [True, True]
    (shown,) = outputs(notebook, "display_data", "text/html")
    assert "✓ succeeded" in shown
