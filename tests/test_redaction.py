"""Nothing that is shown has a secret in it, and everything else stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from allranks.redaction import redact

SIGNED = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJ4In0.c2ln"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Bearer {SIGNED} at", "Bearer *** at"),
        (f"the token {SIGNED}, expired", "the token ***, expired"),
        ("https://a.test/b?sv=1&sig=abc%3D&se=2", "https://a.test/b?sv=1&sig=***&se=2"),
        ("?next=https%3A%2F%2Fa.test%3Fsig%3Dabc%252B%26se%3D2", "?next=https%3A%2F%2Fa.test%3Fsig%3D***%26se%3D2"),
        ("AccountName=a;AccountKey=k/+==;EndpointSuffix=x", "AccountName=a;AccountKey=***;EndpointSuffix=x"),
        ("client_secret=xyz, AZURE_CLIENT_SECRET='x y'", "client_secret=***, AZURE_CLIENT_SECRET='***'"),
        ('{"access_token": "abc, d", "expires": 1}', '{"access_token": "***", "expires": 1}'),
        (r'"{\"sasToken\": \"abc\", \"a\": 1}"', r'"{\"sasToken\": \"***\", \"a\": 1}"'),
        ("x-azureml-token: abc\nok", "x-azureml-token: ***\nok"),
        ("AWS_SECRET_ACCESS_KEY=abc HF_TOKEN=hf", "AWS_SECRET_ACCESS_KEY=*** HF_TOKEN=***"),
        ("git+https://me:p%40ss@host/x.git", "git+https://***@host/x.git"),
        ("redis://:pass@host:1/0", "redis://***@host:1/0"),
    ],
)
def test_secrets_are_blotted_out(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "step 3, tokens: 512, loss: 0.5, design=2, key=value, token_ids=[1, 2]",
        "https://host:8080/a@b and user@host.test, at 10:30",
        "no password was given",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_an_address_with_a_signature_is_not_repeated_in_an_error(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "type: pipeline\ninputs: {data: {type: uri_folder}}\njobs:\n  one:\n    type: command\n"
        "    component: {type: command, name: one, command: 'true', environment: {image: x}}\n"
    )
    address = "data=https://account.test/container?sv=1&sig=c2VjcmV0"
    command = [sys.executable, "-m", "allranks", "run", "job.yaml", address]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "https://account.test/container?sv=1&sig=***" in done.stderr
    assert "c2VjcmV0" not in done.stderr + done.stdout
