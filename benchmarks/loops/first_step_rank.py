"""One rank of a trainer from its start to its first step, and what each part of that took of the processor."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGUN = time.process_time()
ROOT = Path(__file__).parents[2]
FRAMEWORKS = {
    "train_horovod": ("horovod.torch",),
    "train_horovod_keras": ("horovod.tensorflow", "keras"),
    "train_lightning": ("torch", "lightning"),
    "train_transformers": ("torch", "transformers"),
}


class PartTimes:
    """Seconds of the processor that each part took, one after the other."""

    def __init__(self) -> None:
        self.parts = {"interpreter": BEGUN}
        self._last = BEGUN

    def end_part(self, name: str) -> None:
        """Note that a part is over; a second time it changes nothing."""
        now = time.process_time()
        self.parts.setdefault(name, now - self._last)
        self._last = now

    def ending(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function after whose first call a part is over."""

        def called(*given: Any, **named: Any) -> Any:
            found = function(*given, **named)
            self.end_part(name)
            return found

        return called


def main() -> None:
    """Train for an epoch of a few steps, as the component's main does; print the parts."""
    trainer, times = sys.argv[1], PartTimes()
    sys.path[:0] = [str(ROOT), str(ROOT / "components" / trainer)]
    del sys.argv[1]
    component: Any = importlib.import_module(trainer)
    times.end_part("the component and its settings")
    for name in FRAMEWORKS.get(trainer, ("torch",)):
        importlib.import_module(name)
    times.end_part("framework")
    train = component.train

    def timed_train(*given: Any) -> bool:
        times.end_part("group")
        import_what_is_used(train)
        times.end_part("imports of the training")
        watch_parts(times)
        finished: bool = train(*given)
        return finished

    component.train = timed_train
    try:
        component.main()
    finally:
        sys.stdout.write(f"\nPARTS {json.dumps(times.parts)}\n")
        sys.stdout.flush()


def import_what_is_used(function: Callable[..., Any]) -> None:
    """Import what a function imports inside itself."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.ImportFrom) and node.module:
            importlib.import_module(node.module)


def watch_parts(times: PartTimes) -> None:
    """Note when the data is open, when all is made, and when the first step has been made."""
    opening: Any = importlib.import_module("shared.training.core.open_data")
    run: Any = importlib.import_module("shared.training.core.run").TrainingRun
    opening.open_data = times.ending("data", opening.open_data)
    run.__enter__ = times.ending("model, optimizer and checkpoint", run.__enter__)
    run.end_step = times.ending("first step", run.end_step)


if __name__ == "__main__":
    main()
