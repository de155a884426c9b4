"""Start a part of allranks in a child process, from the same files as this process."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# Another allranks may be installed, so this root comes first; after the import it moves behind all packages.
_IMPORT = """\
import sys
root = sys.argv.pop(1)
sys.path.insert(0, root)
import allranks
sys.path.remove(root)
sys.path.append(root)
"""


def child_command(code: str, *arguments: str, isolated: bool = False) -> list[str]:
    """Return the command line of Python that runs the code, which can import this allranks.

    The working folder is not on the import path.

    Args:
        code: Python's source; its `sys.argv` has the arguments from index 1.
        arguments: of the child.
        isolated: whether to ignore PYTHONPATH and the user's own packages.
    """
    return [sys.executable, "-I" if isolated else "-P", "-c", _IMPORT + code, str(_ROOT), *arguments]
