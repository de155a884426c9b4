"""From an error of the SDK or of the service to one message with the next step; secrets in it are blotted out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from allranks.azure.client import AssetPlace, quiet_sdk
from allranks.azure.sdk import TRIED_RELEASES, is_missing_name, refused_credentials
from allranks.errors import AllranksError, AzureError, AzureUnavailableError, CannotRunHereError
from allranks.redaction import redact

_SIGN_IN = (
    "Sign in with `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET; a machine of Azure uses"
    " its managed identity."
)
_TRIED = f'Take one with which this was tried: pip install "{TRIED_RELEASES}".'
_REPEAT = "Give the same command again: what has arrived is not sent twice."
TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
"""Answers that time may mend."""
_CODES = re.compile(r"^\((\w+)\)\s*")
_COLORS = re.compile(r"\x1b\[[\d;]*m")


@contextmanager
def service_errors(doing: str, place: object) -> Iterator[None]:
    """Turn what the Azure SDK raises inside into one of our errors.

    Its message begins with what was being done, such as ``submitting image_classification``, and names the place, which
    is the workspace or the registry.

    Raises:
        AzureError: refused (exit code 2).
        AzureUnavailableError: not reached, too busy, failed (exit code 1).
    """
    try:
        with quiet_sdk():
            yield
    except AllranksError:
        raise
    except Exception as error:
        explained = explain_error(error, doing, place)
        if explained is None:
            raise
        raise explained from None


def explain_error(error: BaseException, doing: str, place: object) -> AllranksError | None:
    """Our error for one of the SDK's; None if it does not come from there."""
    from azure.ai.ml.exceptions import MlException
    from azure.core.exceptions import (
        ClientAuthenticationError,
        HttpResponseError,
        ServiceRequestError,
        ServiceResponseError,
    )

    if is_missing_name(error):
        return CannotRunHereError(f"{doing}: azure-ai-ml {version('azure-ai-ml')} is not as expected: {error}.", _TRIED)
    for cause in error_chain(error):
        status = getattr(cause, "status_code", None)
        if isinstance(cause, ClientAuthenticationError) and status is None:
            refused = [redact(line) for line in refused_credentials(str(cause))]
            why = f"Azure gave no token: {'; '.join(refused)}" if refused else "no credentials for Azure were found."
            return AzureError(f"{doing}: {why}", _SIGN_IN)
        if isinstance(cause, HttpResponseError) and status is not None:
            return _refusal(status, _message_of(cause), doing, place)
        if isinstance(cause, ServiceRequestError | ServiceResponseError):
            return AzureUnavailableError(f"{doing}: the connection to Azure broke: {_message_of(cause)}", _REPEAT)
    if isinstance(error, MlException) or type(error).__module__.startswith(("azure.", "marshmallow.")):
        return AzureError(f"{doing}: {_message_of(error)}")
    return None


def _refusal(status: int, message: str, doing: str, place: object) -> AllranksError:
    if status == 401:
        return AzureError(f"{doing}: Azure did not accept the credentials (401): {message}", _SIGN_IN)
    if status == 403:
        hint = f"Ask the owner of the {place} for a role that may do this, such as AzureML Data Scientist"
        is_registry = isinstance(place, AssetPlace) and place.kind == "registry"
        hint += ", or for a registry AzureML Registry User." if is_registry else "."
        return AzureError(f"{doing}: you have no right to do this in the {place} (403): {message}", hint)
    if status == 404:
        return AzureError(f"{doing}: Azure found no such thing (404): {message}", f"Is the {place} the one you mean?")
    if status == 429:
        return AzureUnavailableError(f"{doing}: Azure throttles requests (429), and went on doing so.", _REPEAT)
    if status in TRANSIENT_STATUSES:
        return AzureUnavailableError(f"{doing}: Azure failed ({status}): {message}", _REPEAT)
    return AzureError(f"{doing}: Azure refused ({status}): {message}")


def _message_of(error: BaseException) -> str:
    """The error's own sentence on one line: without codes, colours, and secrets."""
    inner: Any = getattr(error, "error", None)
    text = getattr(inner, "message", None) or getattr(error, "message", None) or str(error) or type(error).__name__
    text = _CODES.sub("", _COLORS.sub("", str(text)).strip()).partition("\nCode:")[0]
    return redact(" ".join(text.split()))


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from: the SDK wraps what happens during an upload."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
