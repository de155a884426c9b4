"""Known holes of every locked version, kept in a file that the tests read; asked for when somebody says so."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from allranks import catalogue, library
from allranks.advisory_sources import Advisory, KnownAdvisories, ask_index
from allranks.errors import StorageError
from allranks.files import write_text
from allranks.locks import read_pins

_FILE = "advisories.json"
_ACCEPTED = "accepted-advisories.toml"
_LOCKS = ("lock.txt", "image-lock.txt")


def locked_versions() -> list[str]:
    """Every version in constraints.txt and in the environments' locks, as ``name==version``, each once."""
    folders = [path.parent for path in catalogue.environment_files().values()]
    files = [library.root() / "constraints.txt", *(folder / name for folder in folders for name in _LOCKS)]
    pins = (read_pins(path) for path in files)
    return sorted(
        {f"{name}=={pin.lstrip('=').partition(';')[0].strip()}" for some in pins for name, pin in some.items()}
    )


def advisories_file() -> Path:
    """What was known when somebody last asked."""
    return library.root() / "environments" / _FILE


def renew_advisories(ask: Callable[[Sequence[str]], KnownAdvisories] = ask_index) -> list[Path]:
    """Ask for every locked version, and write the file if it changed; returns it then.

    Args:
        ask: `ask_index`, or `read_database` of a clone; what it raises is passed on, and nothing is written.
    """
    wanted = locked_versions()
    known = ask(wanted)
    document = {
        "source": known.source,
        "as_of": known.as_of,
        "unknown": sorted(set(wanted) - set(known.versions)),
        "versions": {package: [asdict(one) for one in found] for package, found in known.versions.items()},
    }
    if read_advisories() == json.loads(json.dumps(document)):
        return []
    write_text(advisories_file(), json.dumps(document, indent=1) + "\n")
    return [advisories_file()]


def read_advisories() -> dict[str, Any] | None:
    """What the file says; None where nobody has asked yet.

    Raises:
        StorageError: it is damaged.
    """
    try:
        document = json.loads(advisories_file().read_text(encoding="utf-8"))
        texts = {name: str(document[name]) for name in ("source", "as_of")}
        return {**texts, "unknown": list(document["unknown"]), "versions": dict(document["versions"])}
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
    found = [Advisory.from_json(package, one) for package in locked for one in document["versions"].get(package, ())]
    names = {name for one in found for name in (one.id, *one.aliases)}
    is_open = [one for one in found if not any(accepted.get(name, "").strip() for name in (one.id, *one.aliases))]
    return is_open, sorted(set(accepted) - names)
