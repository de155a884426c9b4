"""From what a page shows to HTML: one file that needs nothing else, whether it is kept or served."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.local.private_files import make_private_folder
from allranks.wording import (
    compared_words,
    duration_words,
    number_words,
    ranks_words,
    run_seconds,
    short_number,
    size_words,
    status_words,
    step_time,
    value_words,
)

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment
    from jinja2.bccache import Bucket

_ASSETS = Path(__file__).parent / "assets"
_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("uPlot.iife.min.js", "page.js")
_STYLES = ("uPlot.min.css", "style.css", "page.css")


def render_page(
    template: str,
    document: Mapping[str, Any],
    shown: Mapping[str, Any],
    *,
    served: bool = False,
    follows: bool = False,
) -> str:
    """Fill a template with what is ``shown``; ``document`` is what its scripts read, and what ``--json`` prints.

    Args:
        template: a name in ``templates/``.
        document: as JSON.
        shown: the template's variables.
        served: whether a server answers beside the page.
        follows: whether the page then looks for news.
    """
    always = {"document": _as_script(document), "served": served, "follows": served and follows}
    made_of = {"policy": _policy(served=served), **_assets()}
    return _environment().get_template(template).render(**shown, **always, **made_of)


def prepare_templates() -> None:
    """Compile what pages are made of, so that the first one does not wait for it."""
    for template in _environment().list_templates(extensions=["html"]):
        _environment().get_template(template)
    _policy(served=True)


@cache
def _environment() -> Environment:
    """Compiling a template takes longer than filling it, and importing Jinja as long: not before a page is made."""
    from jinja2 import Environment, FileSystemLoader

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=_compiled_templates(),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size_words": size_words, "number": number_words, "duration": duration_words}
    made.filters |= {"short_number": short_number, "value_words": value_words, "compared": compared_words}
    made.globals |= {"run_seconds": run_seconds, "ranks_words": ranks_words, "status_words": status_words}
    made.globals["step_time"] = step_time
    return made


def _compiled_templates() -> BytecodeCache | None:
    """Return Jinja's cache in the user's cache folder; None where that folder cannot be made."""
    from jinja2 import FileSystemBytecodeCache

    class Kept(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Bucket) -> None:
            """Write a template's bytecode. No page fails because the folder is full or read-only."""
            with suppress(OSError):
                super().dump_bytecode(bucket)

    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allranks" / "templates"
        make_private_folder(folder)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    return Kept(str(folder))


@cache
def _assets() -> dict[str, Any]:
    """What is written into each page as it stands: it comes with the package."""
    from markupsafe import Markup

    scripts, styles = (
        [(_ASSETS / name).read_text(encoding="utf-8") for name in names] for names in (_SCRIPTS, _STYLES)
    )
    return {"scripts": [Markup(script) for script in scripts], "styles": [Markup(style) for style in styles]}  # noqa: S704


@cache
def _policy(*, served: bool) -> str:
    """What a browser may do with the page: run our two scripts, and ask the server that it comes from, if one does."""
    digests = (hashlib.sha256(script.encode()).digest() for script in _assets()["scripts"])
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    rules = [
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
    ]
    return "; ".join([*rules, *(["connect-src 'self'", "form-action 'self'"] if served else ["form-action 'none'"])])


def _as_script(document: Mapping[str, Any]) -> Any:
    """JSON that can stand in a script element, whatever texts it holds."""
    from markupsafe import Markup

    text = json.dumps(document, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704
