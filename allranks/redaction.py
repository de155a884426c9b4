"""Blots secrets out of text that is shown: what a service answers, what a log says, what a user has typed."""

from __future__ import annotations

import re

_NAMES = (
    r"client_?secret|password|passwd|(?<![a-z])pwd|(?:(?<![a-z])|(?<=%3f))sig|shared_?access_?key"
    r"|(?:account|storage|access|api|secret|private|subscription)[_-]?key"
    r"|(?:access|refresh|id|auth|tracking|azureml|bearer|hf|sas)[_-]?token"
)
_SECRETS = (
    # NAME=VALUE in addresses and connection strings, NAME: VALUE in headers, "NAME": "VALUE" in JSON, also within JSON.
    (
        re.compile(
            rf"""(?i)({_NAMES})(\\?["'])?(\s*[=:]\s*)(?P<open>\\?["'])?(?(open)(?:(?!(?P=open)).)*|[^&\s"';,]+)"""
        ),
        r"\1\2\3\g<open>***",
    ),
    (re.compile(rf"(?i)({_NAMES})%3D(?:(?!%26)[^&\s\"';,])+"), r"\1%3D***"),  # an address inside an address
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"), "***"),  # a JSON web token
    (re.compile(r"(?i)\bBearer\s+\S+"), "Bearer ***"),
    (re.compile(r"(?i)\b([a-z][a-z\d+.-]{0,30}://)[^/\s:@]*:[^/\s@]+@"), r"\1***@"),  # https://user:password@host
)


def redact(text: str) -> str:
    """The text with signatures, keys, tokens and passwords blotted out.

    What gives a secret away is its name before it, or its form: a JSON web token, credentials in an address.
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
