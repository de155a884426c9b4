"""Redact secrets in text that is shown: a service's answers, logs, what a user has typed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_NAMES = (
    r"client_?secret|password|passwd|(?<![a-z])pwd|(?:(?<![a-z])|(?<=%3f))sig|shared_?access_?key"
    r"|(?:account|storage|access|api|secret|private|subscription|wandb|comet|neptune|openai)[_-]?key"
    r"|(?:access|refresh|id|auth|tracking|azureml|bearer|hf|sas)[_-]?token"
    r"|(?-i:(?<=[A-Z0-9]_)(?:TOKEN|SECRET)(?![A-Za-z0-9_]))"  # of variables, such as GITHUB_TOKEN; not pad_token
)
_SHAPES = (  # of tokens that tell by themselves whose they are, as their services document them
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{50,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",  # AWS
    r"(?<!sha512-)[A-Za-z0-9+/]{86}==",  # the key of a storage account
    r"[\w.~-]{3}\dQ~[\w.~-]{31,34}",  # the secret of an application in Entra ID
    r"sk-(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{32,}",  # OpenAI and those who took after it
    r"xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{20,}",  # Slack
    r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|imt|agent)-[\w-]{20,}(?:\.[\w-]+)*",  # GitLab
    r"pypi-AgE[\w-]{50,}|npm_[A-Za-z0-9]{36}|AIza[\w-]{35}|dapi[0-9a-f]{32}",  # PyPI, npm, Google, Databricks
)
_SHAPE_HINTS = (
    *("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hub_pat_", "akia", "asia", "==", "q~"),
    *("sk-", "xox", "xapp-", "pypi-", "npm_", "aiza", "dapi"),
    *("glp", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "glimt-", "glagent-"),
)
_NAME_HINTS = ("secret", "password", "passwd", "pwd", "sig", "key", "token")
_OPTION = rf"""(?i)(?<!\S)(--?(?:[\w-]*[_-])?(?:{_NAMES})|--token)(\s+)('[^']*'|"[^"]*"|[^\s'"-]\S*)"""
"""An option and its value, as they stand in a command."""
_SECRETS = (
    (("private key",), r"(?s)-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?(?:-----END \1PRIVATE KEY-----|\Z)", "***"),
    (
        ("akia", "asia"),
        r"((?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}[\s:,;|\"']{1,3})[A-Za-z0-9/+]{40}(?![\w/+])",
        r"\1***",
    ),
    (_SHAPE_HINTS, rf"(?a)(?<![\w+/~-])(?:{'|'.join(_SHAPES)})(?![\w/+~])", "***"),
    (("hooks.slack",), r"(https://hooks\.slack\.com/(?:services|workflows)/)[\w/]+", r"\1***"),
    (_NAME_HINTS, _OPTION, r"\1\2***"),
    (  # NAME=VALUE in addresses and connection strings, NAME: VALUE in headers, "NAME": "VALUE" in JSON, or within JSON
        _NAME_HINTS,
        rf"""(?i)({_NAMES})(\\?["'])?(\s*[=:]\s*)(?P<open>\\?["'])?(?(open)(?:(?!(?P=open)).)*|[^&\s"';,]+)""",
        r"\1\2\3\g<open>***",
    ),
    (("%3d",), rf"(?i)({_NAMES})%3D(?:(?!%26)[^&\s\"';,])+", r"\1%3D***"),  # an address inside an address
    (("eyj",), r"\beyJ[\w-]+\.[\w-]+\.[\w-]*", "***"),  # a JSON web token
    (("bearer",), r"(?i)\bBearer\s+\S+", "Bearer ***"),
    (("authorization",), r"(?i)(\bAuthorization[\"']?\s*[:=]\s*[\"']?(?:Basic|Digest|Token)\s+)[^\s\"']+", r"\1***"),
    (("cookie:",), r"(?i)(\b(?:Set-)?Cookie:\s*)[^\r\n]+", r"\1***"),
    (("-u ", "--user "), r"((?<!\S)(?:-u|--user) [^\s:@/]+:)\S+", r"\1***"),  # curl
    (("mysql",), r"(\bmysql\w*\s(?:[^\n]*\s)?-p)[^\s-]\S*", r"\1***"),
    (("://",), r"(?i)\b([a-z][a-z\d+.-]{0,30}://)[^/\s:@]*:[^/\s@]+@", r"\1***@"),  # https://user:password@host
    # https://token@host; elsewhere it is a user or a container: ssh://git@host, abfss://container@account
    (("http",), r"""(?i)\b((?:[a-z]+\+)?https?://)[^/\s:@?#"'<>,;]+@""", r"\1***@"),
)
"""Each with words of which one is in every text that it changes: looking for these takes a hundredth of the time, and a
pattern that is never needed is never compiled, which would take as long as a step that does nothing."""


_NAMED = rf"(?i){_NAMES}|\A(?:token|secret|credentials?)\Z|(?-i:(?:\A|_)(?:TOKEN|PASS|PASSPHRASE)(?:\Z|_)"
_NAMED += r"|SECRET|_(?:PAT|AUTH|CREDENTIALS?|WEBHOOK(?:_URL)?)\Z)"
_VALUES = frozenset({"values", "parameters", "inputs", "variables", "environment_variables"})
_PLACES = frozenset({"outputs", "folder", "run_dir", "log"})  # paths of ours, which are read again


_SHORTEST = 6
"""Shorter values, such as ``true``, are parts of too much else."""
_known: list[str] = []


def redact_values(named: Mapping[str, object], command: str = "") -> None:
    """Redact these values too, in all text from now on: those of variables, inputs and options that are secret by name.

    Args:
        named: the values by the names of their variables or inputs.
        command: a command with options.
    """
    found = {str(value) for name, value in named.items() if _says_secret(name)}
    found |= {option[3].strip("'\"") for option in re.finditer(_OPTION, command)}
    if new := {value for value in found if len(value) >= _SHORTEST and "${{" not in value}.difference(_known):
        _known[:] = sorted((*_known, *new), key=len, reverse=True)
        _remembered.cache_clear()


def redact_named(name: str, value: str) -> str:
    """The value of an input or a variable: blotted out whole if its name says that it is a secret."""
    return "***" if _says_secret(name) else _redact_again(value)


@lru_cache(1024)
def _says_secret(name: str) -> bool:
    lower = name.lower()
    return (
        name != "PWD"
        and any(hint in lower for hint in (*_NAME_HINTS, "credential", "pass", "_pat", "_auth", "webhook"))
        and bool(re.search(_NAMED, name))
    )


def redact_document(document: Any, within: str = "") -> Any:
    """A JSON document with its texts redacted; ``within`` is the key that it stands below.

    Values of inputs and variables are judged by their names too; the paths of runs stay, since they are read again.
    """
    if isinstance(document, dict):
        return {
            key: redact_named(key, value)
            if within in _VALUES and isinstance(value, str)
            else value
            if key in _PLACES
            else redact_document(value, key)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [redact_document(one, within) for one in document]
    return _redact_again(document) if isinstance(document, str) else document


def _redact_again(text: str) -> str:
    """What a document holds is mostly short, and written again whenever a step changes."""
    return _remembered(text) if len(text) <= 200 else redact(text)


def redact(text: str) -> str:
    """Return the text with `***` for signatures, keys, tokens and passwords.

    A secret is known by its value (`redact_values`), by the name before it, or by its form: a token of a service that
    gives its tokens a shape, a private key, credentials in an address.
    """
    for value in _known:
        text = text.replace(value, "***")
    lower = text.lower()
    for hints, pattern, replacement in _SECRETS:
        if any(hint in lower for hint in hints):
            text = re.sub(pattern, replacement, text)
    return text


_remembered = lru_cache(8192)(redact)
redact_values(os.environ)
