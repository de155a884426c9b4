"""What is named wrong is told with what it is and how it is meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", ["show", "lint"])
def test_a_script_is_no_target_and_a_component_starts_it(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('training')\n")
    called = cli(verb, "train.py")
    assert (called.code, called.out) == (2, "")
    if verb != "lint":
        assert "'train.py' is a script; a Python target is a function with @pipeline, train.py:FUNCTION." in called.err
        assert "hint: `allranks run train.py` runs it, `allranks init train.py` makes a component of it" in called.err


def test_what_is_given_twice_is_refused(cli: Callable[..., Any]) -> None:
    """The last one counted, without a word."""
    for verb in ("run", "submit"):
        for options, said in (
            (("--scale", "train=1x1", "--scale", "train=2x1"), "--scale train=1x1 and train=2x1"),
            (("epochs=1", "epochs=2"), "epochs=1 and epochs=2"),
        ):
            called = cli(verb, "image_classification", *options, "--dry-run")
            assert (called.code, called.err.startswith(f"error: {said}: two values for the same.")) == (2, True)


def test_register_without_the_sdk_names_the_extra() -> None:
    program = "import sys; sys.modules['azure.ai.ml'] = None\nfrom allranks.cli.main import main"
    program += "\nfor option in ('--workspace', '--dry-run'): print(main(['register', option]))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n2\n"
    assert done.stderr.count("error: `allranks register` needs the Azure ML SDK, azure-ai-ml") == 2
    assert done.stderr.count('pip install -e "') == done.stderr.count('[azure]"') == 2


def test_a_dry_run_of_register_without_a_place_needs_no_credentials(cli: Callable[..., Any]) -> None:
    listed = cli("register", "image_classification", "--dry-run")
    assert listed.code == 0, listed.err
    assert [line.split()[0] for line in listed.out.splitlines()[1:]][:1] == ["environment"]
    assert "image_classification" in listed.out
    assert "with --workspace or --registry it is compared with what is there" in listed.out
    assert [one["action"] for one in cli("register", "train_ddp", "--dry-run", "--json").json["assets"]] == [None] * 2
    assert cli("register", "train_ddp").err.startswith("error: where to register is not said.")
