"""`allranks doctor`, and what is said on systems that are not Linux."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
SIGNED_IN = ("AZURE_CLIENT_ID", "AZUREML_RUN_ID", "IDENTITY_ENDPOINT")
"""Variables that doctor takes for traces of a sign-in to Azure."""


def doctor(folder: Path, *arguments: str, code: int = 0, seconds: float = TIMEOUT, **variables: str) -> dict[str, Any]:
    """Return what doctor prints as JSON in a process that has imported no framework.

    Programs get so many seconds to answer: on a busy machine they need more than the second that users wait.
    """
    program = (
        "import sys; from allranks.cli import doctor_checks; from allranks.cli.main import main;"
        f"doctor_checks._SECONDS = {seconds}; code = main(['doctor', '--json', *sys.argv[1:]]);"
        "heavy = {'torch', 'tensorflow', 'azure.ai.ml', 'mlflow'} & set(sys.modules); assert not heavy, heavy;"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in SIGNED_IN}
        | {"PYTHONPATH": str(ROOT)}
        | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr) == (code, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["can_run"] == (code == 0)
    assert all(check["mend"] for check in found["checks"].values() if check["status"] != "works"), "no dead end"
    checks: dict[str, Any] = found["checks"]
    return checks


def test_what_is_installed_is_named_with_its_version(tmp_path: Path) -> None:
    checks = doctor(tmp_path)
    assert checks["python"]["found"].endswith(sys.executable)
    assert "torch 2." in checks["frameworks"]["found"]
    assert checks["extra torch"]["status"] == "works"
    assert checks["mpirun"]["found"].startswith("mpirun (Open MPI)"), "beside the interpreter, as steps find it"
    assert not (tmp_path / ".allranks").exists(), "it changes nothing"


def test_programs_that_are_not_there_or_do_not_answer_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("nvidia-smi", "docker"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexec /bin/sleep 60\n")
        (tmp_path / "bin" / name).chmod(0o755)
    checks = doctor(tmp_path, seconds=0.1, PATH=str(tmp_path / "bin"), AZURE_CONFIG_DIR=str(tmp_path))
    assert "no answer" in checks["containers"]["found"]
    assert checks["read-only inputs"]["found"] == "unshare is not there"
    assert checks["azure sign-in"]["mend"].endswith("az login")


def test_a_runs_folder_that_cannot_be_written_is_no_place_to_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = doctor(tmp_path, "--runs-dir", "file/runs", code=1)
    assert checks["runs folder"]["status"] == "broken"


@pytest.mark.parametrize(
    ("system", "verb", "said"),
    [("win32", "list", "Use WSL 2"), ("darwin", "run", "`allranks run` needs Linux"), ("darwin", "list", "")],
)
def test_other_systems_are_told_before_anything_is_imported_that_they_lack(system: str, verb: str, said: str) -> None:
    lacking = "import sys; sys.modules['fcntl'] = None;"  # as on Windows; macOS lacks less
    program = f"{lacking} from allranks.cli.main import main; sys.platform = {system!r}; sys.exit(main([{verb!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if said else 0)
    assert said in done.stderr
