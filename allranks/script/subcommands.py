"""Which of a script's subcommands a component starts: ``train`` of ``python main.py train --epochs 3``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from allranks.errors import UsageError
from allranks.spec.suggest import nearest_hint

Subcommand = tuple[str, ...]
"""The words of a subcommand, outermost first; none for the script's own command line."""

_LISTED = 12


def chosen_subcommand(asked: Subcommand, known: Iterable[Subcommand], script: str) -> Subcommand:
    """The subcommand that was asked for, or the only one.

    Raises:
        UsageError: there are several and none was named, or the one that was named is none of them.
    """
    choices = list(dict.fromkeys(known))
    if asked in choices:
        return asked
    if not asked and len(choices) == 1:
        return choices[0]
    names = [" ".join(one) for one in choices]
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    hint = "A component starts one of them: `allranks init {} --by-help --subcommand {}`."
    if not asked:
        raise UsageError(f"{script} has subcommands: {listed}.", hint.format(script, shlex.quote(names[0])))
    meant = nearest_hint(" ".join(asked), names)
    raise UsageError(f"{script} has no subcommand {' '.join(asked)!r}: it has {listed}.", meant)
