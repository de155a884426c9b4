"""Nothing that is shown has a secret in it, and everything else stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies

from allranks.redaction import redact, redact_document
from tests.helpers import run_python

KEY = "a1B2c3D4" * 16
"""As random as a secret, and long enough for any; put together here, so that no scanner takes the test for a leak."""
BEARERS = [
    "hf_" + KEY[:34],
    *(f"gh{kind}_" + KEY[:36] for kind in "pousr"),
    "github_pat_" + KEY[:22] + "_" + KEY[:59],
    *(kind + "1B2C3D4E5F6G7H8I" for kind in ("AKIA", "ASIA")),
    KEY[:86] + "==",
    "abc8Q~" + KEY[:34],
    "sk-" + KEY[:20] + "T3BlbkFJ" + KEY[:20],
    "sk-proj-" + KEY[:60] + "-_" + KEY[:20],
    "sk-ant-api03-" + KEY[:80],
    "xoxb-123456789012-1234567890123-" + KEY[:24],
    "glpat-" + KEY[:20],
    "glpat-" + KEY[:27] + ".01.1a2b3c4d5",
    "pypi-AgEIcHlwaS5vcmc" + KEY[:60],
    "npm_" + KEY[:36],
    "AIza" + KEY[:35],
    "dapi" + "0123456789abcdef" * 2,
]
"""A token of each service that gives its tokens a shape of their own."""
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
        ("GITHUB_TOKEN=abc python a.py; MY_SECRET: 'x y'", "GITHUB_TOKEN=*** python a.py; MY_SECRET: '***'"),
        ("git+https://me:p%40ss@host/x.git", "git+https://***@host/x.git"),
        ("redis://:pass@host:1/0", "redis://***@host:1/0"),
        ("pip install git+https://abc1@host/x.git", "pip install git+https://***@host/x.git"),
        ("python a.py --api-key 'x y' --token abc --lr 1", "python a.py --api-key *** --token *** --lr 1"),
        (BEARERS[7] + ":" + KEY[:40] + " ok", "***:*** ok"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----\nok", "***\nok"),
        ("https://hooks.slack.com/services/T0/B0/" + KEY[:24], "https://hooks.slack.com/services/***"),
    ],
)
def test_secrets_are_blotted_out(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "step 3, tokens: 512, loss: 0.5, design=2, key=value, token_ids=[1, 2]",
        "https://host:8080/a@b and user@host.test, at 10:30",
        "ssh://git@host/x.git, abfss://data@account.dfs.core.windows.net/x, https://host?mail=a@b",
        "no password was given",
        "pad_token=<pad>, max_tokens=5, PAD_TOKEN_ID=3",
        "task-" + KEY[:40] + " of disk-" + KEY[:40],
        "sk-learn-compatible-estimators-for-everything-and-more",
        "hf_transfer, hf_hub_download, ghp_, glpat-short, --eos-token '</s>' --tokens 512",
        "sha512-" + KEY[:86] + "==",
        "AKIAND other words",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_variable_is_judged_by_its_name() -> None:
    secret = ("GITHUB_TOKEN", "TOKEN", "MY_SECRET", "SECRET_OF_APP", "DB_PASS", "GPG_PASSPHRASE", "WANDB_API_KEY")
    shown = ("PWD", "TOKENIZERS_PARALLELISM", "pad_token", "BYPASS", "PASSES", "max_tokens")
    found = redact_document({"variables": dict.fromkeys((*secret, *shown), "plain")})["variables"]
    assert found == dict.fromkeys(secret, "***") | dict.fromkeys(shown, "plain")


@pytest.mark.parametrize("secret", BEARERS)
@pytest.mark.parametrize("around", ["{}", "token {}.", "('{}',)", "a={}&b=1", '{{"a": "{}"}}', "é{} ü"])
def test_the_tokens_of_well_known_services_are_known_by_their_shape(secret: str, around: str) -> None:
    assert redact(around.format(secret)) == around.format("***")


HEX = strategies.text("0123456789abcdef", min_size=32, max_size=128)
IDS = strategies.one_of(
    HEX,
    HEX.map(lambda text: f"sha256:{text}"),
    strategies.uuids().map(str),
    strategies.from_regex(r"\A20[0-9]{6}-[0-9]{6}-[0-9]{3}-[0-9a-f]{4}\Z"),
    strategies.from_regex(r"\A/[a-z_]{1,12}/[a-z]{1,9}-[0-9.]{1,9}/[A-Za-z_]{1,20}\.py:[0-9]{1,4}\Z"),
    strategies.floats().map(lambda number: f"loss={number} step {number:.3e}"),
)


@settings(max_examples=50)
@given(strategies.lists(IDS, max_size=5).map(" ".join))
def test_hashes_ids_commits_and_numbers_stay(text: str) -> None:
    assert redact(text) == text


@given(strategies.text())
def test_what_is_blotted_out_stays_so(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_documents_are_redacted_by_the_names_of_values_and_paths_stay() -> None:
    document = {
        "values": {"password": "a b", "epochs": "3", "url": "https://u:p@h/x"},
        "steps": [{"parameters": {"hf_token": "x", "rate": 0.1}, "outputs": {"access_key": "/a/b"}}],
        "text": "sig=abc",
        "key": "0f" * 32,
        "none": None,
    }
    assert redact_document(document) == {
        "values": {"password": "***", "epochs": "3", "url": "https://***@h/x"},
        "steps": [{"parameters": {"hf_token": "***", "rate": 0.1}, "outputs": {"access_key": "/a/b"}}],
        "text": "sig=***",
        "key": "0f" * 32,
        "none": None,
    }


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


def test_what_a_name_says_is_secret_is_redacted_by_its_value() -> None:
    code = """
        import os
        os.environ |= {"DB_PASS": "of-db", "GITHUB_PAT": "of-pat-1", "COMET_AUTH": "of-auth-1", "SLACK_WEBHOOK": "of-hook-1"}
        os.environ |= {"MYSECRET": "of-mine-1", "HOME_TOKENIZER": "not-secret", "USE_AUTH": "true"}
        from allranks.redaction import redact, redact_values
        print(redact("['of-pat-1', 'of-auth-1', 'of-hook-1', 'of-mine-1', 'not-secret', true, of-db]"))
        redact_values({"api_key": "of-input", "rate": "0.1000"}, "python a.py --wandb-key of-option --lr 0.2000")
        print(redact("of-input of-option 0.1000 0.2000"))
    """
    shown = run_python(code).stdout.splitlines()
    assert shown == ["['***', '***', '***', '***', 'not-secret', true, of-db]", "*** *** 0.1000 0.2000"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Basic UzND", "Authorization: Basic ***"),
        ("{'Authorization': 'Basic UzND'}", "{'Authorization': 'Basic ***'}"),
        ("Cookie: session=abc; b=c", "Cookie: ***"),
        ("curl -u user:pw https://x", "curl -u user:*** https://x"),
        ("mysql -h db -ppw", "mysql -h db -p***"),
        ("sort -u file; python -u train.py", "sort -u file; python -u train.py"),
    ],
)
def test_credentials_of_common_tools(text: str, shown: str) -> None:
    assert redact(text) == shown
