"""Paths that a shell takes for one word. Azure ML's have no spaces, so that commands seldom quote them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

_PLAIN = re.compile(r"[\w@%+:,./=^-]*")
_DIGITS: Final = 16  # of a digest: some 10^9 folders before two are alike


def plain_path(path: str | Path) -> str:
    """A path as it is; or, where a shell would read a space or the like in it, another way to the same place.

    That leads through a link to the last folder of such a name in it, which lies in the user's cache: one for all that
    is in there. What is at its end is no link, which `find` and `cp -r` would not follow; a folder that has such a name
    itself ends with ``/.`` for that reason.
    """
    text = str(path)
    if _PLAIN.fullmatch(text) or not text.startswith("/"):  # what a dry run shows of a place is no path yet
        return text
    parts = text.split("/")
    odd = max(at for at, part in enumerate(parts) if not _PLAIN.fullmatch(part))
    folder, rest = "/".join(parts[: odd + 1]), "/".join(parts[odd + 1 :])
    try:
        if rest:
            return f"{_link_to(folder)}/{rest}"
        if os.path.isdir(folder):  # noqa: PTH112 they are texts here
            return f"{_link_to(folder)}/."
        return _link_to(folder, suffix=os.path.splitext(folder)[1])  # noqa: PTH122
    except OSError:
        return text


def _link_to(target: str, suffix: str = "") -> str:
    """A link of ours, made if absent: each leads to one place for good."""
    digest = hashlib.sha256(os.fsencode(target)).hexdigest()[:_DIGITS]
    link = f"{_links_folder()}/{digest}{suffix if _PLAIN.fullmatch(suffix) else ''}"
    if not os.path.islink(link) or os.readlink(link) != target:  # noqa: PTH114, PTH115
        beside = f"{link}.{os.getpid()}"
        os.symlink(target, beside)  # noqa: PTH211
        os.replace(beside, link)  # noqa: PTH105
    return link


def _links_folder() -> str:
    """A folder of the user's alone, with a plain path; raises OSError where there is none."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 nobody's home is no error
    for folder in (f"{cache}/allranks/paths", f"/tmp/allranks-paths-{os.getuid()}"):  # noqa: S108 its owner is looked at
        if not folder.startswith("/") or not _PLAIN.fullmatch(folder):
            continue
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            found = os.lstat(folder)
        except OSError:
            continue
        if found.st_uid == os.getuid() and not found.st_mode & 0o022 and os.path.isdir(folder):  # noqa: PTH112
            return folder
    raise FileNotFoundError
