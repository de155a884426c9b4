"""Templates' bytecode, kept as Python keeps a module's: beside the source, for this version of both, or not at all."""

from __future__ import annotations

import importlib.util
import marshal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from jinja2 import BytecodeCache

from allranks.files import write_bytes

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.bccache import Bucket


class CompiledTemplates(BytecodeCache):
    """Keeps what compiling the templates of a folder gave: that takes ten times as long as filling one.

    What is kept is as trustworthy as the ``__pycache__`` that it lies in, and is read only if all that it depends on is
    the same: the template's text, the settings that change what it compiles to, the versions of Jinja and of Python.
    """

    def __init__(self, templates: Path) -> None:
        self._templates = templates

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket its code, if it is kept."""
        with suppress(OSError, EOFError, ValueError, TypeError):
            kept = self._file(bucket).read_bytes()
            header = _header(bucket)
            if kept.startswith(header):
                bucket.code = marshal.loads(kept[len(header) :])  # noqa: S302 see above

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket's code; where nothing may be written nothing is kept."""
        if sys.dont_write_bytecode or bucket.code is None:
            return
        file = self._file(bucket)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, _header(bucket) + marshal.dumps(bucket.code))

    def get_cache_key(self, name: str, filename: str | None = None) -> str:  # noqa: ARG002 the loader's interface
        """The template's name: there is one folder."""
        return name

    def _file(self, bucket: Bucket) -> Path:
        """For ``page.html`` it is ``__pycache__/page.html.cpython-311.pyc``, or where PYTHONPYCACHEPREFIX says."""
        return Path(importlib.util.cache_from_source(str(self._templates / f"{bucket.key}.py")))


def _header(bucket: Bucket) -> bytes:
    settings = _settings(bucket.environment)
    return importlib.util.MAGIC_NUMBER + f"{jinja2.__version__} {settings} {bucket.checksum}\n".encode()


def _settings(environment: Environment) -> str:
    return f"{environment.trim_blocks} {environment.lstrip_blocks} {environment.optimized}"
