"""What a local run writes and prints has no secret in it, belongs to its owner alone, and can be resumed all the same."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.support import allranks, command, environ, pipeline, step

PASSWORD = "c0rrect-horse"  # noqa: S105 one that opens nothing
TOKEN = "hf_" + "a1B2c3D4" * 5
SECRETS = (PASSWORD, TOKEN, "c2lnbmF0dXJl", "user:pass")
SAY = step(
    "echo --password '${{inputs.password}}' https://user:pass@host/x '?sv=1&sig=c2lnbmF0dXJl'; echo $HF_TOKEN; "
    "grep -q x ready || exit 3",
    inputs="password: '${{parent.inputs.password}}'",
    more=f"environment_variables: {{HF_TOKEN: {TOKEN}}}, code: ./code",
)
TEXT = f"""
type: pipeline
inputs: {{password: {{type: string}}}}
jobs: {{say: {SAY}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a step with secrets has failed, under a umask that would let anybody read."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "code").mkdir()
    (folder / "code" / "ready").write_text("no")
    pipeline(folder, TEXT)
    return folder


def call(folder: Path, *arguments: str) -> str:
    """What a command prints, errors included; a run is started under a umask of 0."""
    if arguments[0] != "run":
        shown = allranks(*arguments, cwd=folder)
        return shown.stdout + shown.stderr
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        umask=0,
    )
    return done.stdout


def below(folder: Path) -> Iterator[Path]:
    for path, _, files in os.walk(folder):
        yield Path(path)
        yield from (Path(path, file) for file in files)


@pytest.mark.slow
def test_nothing_for_people_has_a_secret_in_it_and_the_run_is_resumed(folder: Path) -> None:
    printed = call(folder, "run", "pipeline.yaml", f"password={PASSWORD}")
    assert "--password ***" in printed, "the end of the log is quoted"
    for arguments in (["list"], ["show", "latest"], ["logs", "latest", "say"]):
        for form in ([], ["--json"]):
            printed += call(folder, "runs", *arguments, *form)
    printed += call(folder, "run", "--resume", "latest", "--json")
    printed += call(folder, "run", "--resume", "latest", "--dry-run")
    printed += call(folder, "run", "--resume", "latest", "--dry-run", "--json")
    assert not [secret for secret in SECRETS if secret in printed], printed
    for path in below(folder / ".allranks" / "runs"):
        if path.suffix in {".html", ".json"} and path.name != "request.json":
            text = path.read_text()
            assert not [secret for secret in SECRETS if secret in text], path
    (folder / "code" / "ready").write_text("x")
    resumed = call(folder, "run", "--resume", "latest", "--json")
    assert json.loads(resumed)["status"] == "succeeded", "with the password, which only request.json holds"
    open_to_others = [
        path
        for path in below(folder / ".allranks")
        if not path.is_symlink() and path.stat().st_mode & 0o077 and (path.is_dir() or path.name == "request.json")
    ]
    ours = [path for path in open_to_others if not {"nodes", "snapshot", "mlflow"} & set(path.parts)]
    assert not ours


def test_a_runs_folder_that_was_there_keeps_its_own_mode_and_what_is_in_it_is_private(folder: Path) -> None:
    own = folder / "shared"
    own.mkdir()
    own.chmod(0o755)
    call(folder, "run", "pipeline.yaml", f"password={PASSWORD}", "--runs-dir", "shared")
    assert own.stat().st_mode & 0o777 == 0o755
    assert not [
        path
        for path in own.iterdir()
        if path.name not in {".gitignore", "CACHEDIR.TAG"} and path.stat().st_mode & 0o077
    ]
