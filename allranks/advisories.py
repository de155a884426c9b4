"""Known holes of every locked version: what the package index says of them, kept in a file that the tests read.

PyPI's JSON API names the vulnerabilities of each version, from the Python Packaging Advisory Database:
https://docs.pypi.org/api/json/#known-vulnerabilities. It is asked when somebody says so, never by a test.
"""

from __future__ import annotations

import json
import os
import ssl
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks import catalogue, library
from allranks.errors import CannotRunHereError, StorageError
from allranks.files import write_text
from allranks.locks import read_pins

_INDEX = "https://pypi.org/pypi"
_FILE = "advisories.json"
_ACCEPTED = "accepted-advisories.toml"
_LOCKS = ("lock.txt", "image-lock.txt")
_SECONDS = 30.0
_MOST_BYTES = 64 * 2**20
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Advisory:
    """One known hole of one locked version.

    Attributes:
        package: name and version, as ``name==version``.
        id: such as ``PYSEC-2024-48``.
        aliases: its other names, such as a CVE's.
        fixed_in: versions without it; empty if there is none yet.
        link: where it is described.
    """

    package: str
    id: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    link: str

    def __str__(self) -> str:
        """As one line: the version, the hole, and what is without it."""
        names = ", ".join((self.id, *self.aliases))
        return f"{self.package}: {names}; fixed in {', '.join(self.fixed_in) or 'no version yet'}; {self.link}"


def locked_versions() -> list[str]:
    """Every version in constraints.txt and in the environments' locks, as ``name==version``, each once."""
    folders = [path.parent for path in catalogue.environment_files().values()]
    files = [library.root() / "constraints.txt", *(folder / name for folder in folders for name in _LOCKS)]
    pins = (read_pins(path) for path in files)
    return sorted(
        {f"{name}=={pin.lstrip('=').partition(';')[0].strip()}" for some in pins for name, pin in some.items()}
    )


def advisories_file() -> Path:
    """What the index said when it was last asked."""
    return library.root() / "environments" / _FILE


def renew_advisories(index: str = _INDEX) -> list[Path]:
    """Ask for every locked version, and write the file if it changed; returns it then.

    Raises:
        CannotRunHereError: the index cannot be reached, or has no JSON API; nothing is written.
    """
    wanted, context = locked_versions(), _tls_context()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(wanted, pool.map(lambda one: _ask(index, one, context), wanted), strict=True))
    known = {package: found for package, found in answers.items() if found is not None}
    if not known:
        message = f"{index} knows none of the {len(wanted)} locked versions: it has no JSON API."
        raise CannotRunHereError(message, "Ask where PyPI itself, or a mirror with its JSON API, is reached.")
    versions = {package: [asdict(one) for one in found] for package, found in known.items()}
    before = read_advisories()
    if before is not None and before["versions"] == json.loads(json.dumps(versions)):
        return []
    asked = datetime.now(UTC).strftime("%Y-%m-%d")
    unknown = sorted(set(wanted) - set(known))
    write_text(
        advisories_file(), json.dumps({"asked": asked, "unknown": unknown, "versions": versions}, indent=1) + "\n"
    )
    return [advisories_file()]


def read_advisories() -> dict[str, Any] | None:
    """What the file says; None where nobody has asked yet.

    Raises:
        StorageError: it is damaged.
    """
    try:
        document = json.loads(advisories_file().read_text(encoding="utf-8"))
        return {"asked": str(document["asked"]), "versions": dict(document["versions"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        message = f"{advisories_file()} is damaged: {error!r}."
        raise StorageError(message, "Make it anew: allranks renew --advisories") from error


def accepted_advisories() -> dict[str, str]:
    """The holes that are accepted, by any of their names, and why."""
    path = library.root() / "environments" / _ACCEPTED
    found = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: str(why) for name, why in found.items()}


def open_advisories(
    document: Mapping[str, Any], locked: Iterable[str], accepted: Mapping[str, str]
) -> tuple[list[Advisory], list[str]]:
    """The holes of locked versions that are not accepted; and what is accepted for no reason that is left.

    A hole counts as accepted under any of its names.
    """
    found = [_advisory(package, one) for package in locked for one in document["versions"].get(package, ())]
    names = {name for one in found for name in (one.id, *one.aliases)}
    is_open = [one for one in found if not any(accepted.get(name, "").strip() for name in (one.id, *one.aliases))]
    return is_open, sorted(set(accepted) - names)


def _ask(index: str, package: str, context: ssl.SSLContext) -> list[Advisory] | None:
    """What the index says of a version; None if it does not know it."""
    address = f"{index}/{package.replace('==', '/')}/json"
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS, context=context) as answer:  # noqa: S310  # https, ours
            document = json.loads(answer.read(_MOST_BYTES))
        return [_advisory(package, one) for one in document["vulnerabilities"] if not one.get("withdrawn")]
    except urllib.error.HTTPError as error:
        if error.code == 404:  # not found
            return None
        raise CannotRunHereError(f"{address} answered {error.code} {error.reason}.", "Try again later.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotRunHereError(f"{address} cannot be read: {error}.", "Nothing was written.") from error


def _advisory(package: str, found: Mapping[str, Any]) -> Advisory:
    lists = {name: tuple(map(str, found.get(name) or ())) for name in ("aliases", "fixed_in")}
    return Advisory(package, str(found["id"]), link=str(found.get("link") or ""), **lists)


def _tls_context() -> ssl.SSLContext:
    """Certificates as pip would take them: its own variable, else the system's."""
    return ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
