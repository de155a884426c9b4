"""Where the processes of emulated nodes run: on this machine as they are, or in what a room of its own makes for them.

All that the engine knows of containers is this interface; ``containers/`` has the other implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from allranks.local.fingerprint import interpreter_digest
from allranks.local.launch.launcher import RankLauncher
from allranks.local.variables import inherited_variables


class NodeHost:
    """This machine: the ranks are processes of the chosen interpreter, which signals end."""

    is_this_machine = True

    @property
    def end(self) -> Callable[[str], None]:
        """Ends what signals to the engine's own processes do not reach, by ``NAME=value`` of a gang or of a run.

        Equal for hosts of which one call ends everything.
        """
        return _end_nothing

    def identity(self, python: Path) -> str:
        """What decides, besides what the step says, which programs its command finds."""
        return interpreter_digest(python)

    def inherited(self, environ: Mapping[str, str], python: Path) -> dict[str, str]:
        """The caller's variables that a step keeps."""
        return inherited_variables(environ, python)

    def launcher(self, of_distribution: RankLauncher) -> RankLauncher:
        """How the ranks of a distribution are started here."""
        return of_distribution


def _end_nothing(marker: str) -> None:
    """Processes of this machine die with their engine, or by its guard."""


THIS_MACHINE = NodeHost()
