"""A worker of a parallel step: calls init(), then run() with each mini batch that it is told, then shutdown().

It is started by the step's own interpreter, any Python from 3.6 on, and imports nothing of allranks. Orders come as
lines of JSON on one pipe, and what became of them goes back on another; standard output is the log.
"""

import faulthandler
import importlib.util
import inspect
import json
import logging
import os
import signal
import sys
import traceback
import types
from pathlib import Path
from typing import Any


class MiniBatchContext:
    """What ``run`` is told of a mini batch if it takes a second argument."""

    def __init__(self, order: Any) -> None:
        self.minibatch_index = order["index"]
        self.partition_key_value: Any = {}  # only tables have keys
        self.dataset = None
        self.task_id = order["index"]
        self.mini_batch_id = order["index"]

    def __repr__(self) -> str:
        return f"MiniBatchContext({self.minibatch_index})"


def main() -> None:
    """Work until the pipe ends or the order to stop comes."""
    faulthandler.register(signal.SIGUSR1)  # how a call that takes too long shows where it is
    settings = json.loads(sys.argv[1])
    for descriptor in (settings["orders"], settings["answers"]):
        os.set_inheritable(descriptor, False)
    orders = os.fdopen(settings["orders"], encoding="utf-8")
    answers = os.fdopen(settings["answers"], "w", encoding="utf-8")

    def answer(**said: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        answers.write(json.dumps(said) + "\n")
        answers.flush()

    try:
        module = load_entry_script(settings)
        module.init()
    except BaseException:  # SystemExit of an argument parser too
        answer(what="init_failed", error=explain())
        raise
    answer(what="ready")
    takes_context = len(inspect.signature(module.run).parameters) > 1
    for line in orders:
        order = json.loads(line)
        if order.get("stop"):
            break
        answer(**process(module, order, answer, takes_context=takes_context, header=settings["header"]))
    if hasattr(module, "shutdown"):
        module.shutdown()


def load_entry_script(settings: Any) -> Any:
    """Import the entry script as a module of its own name, with the arguments that it looks for in sys.argv."""
    here = Path.cwd()
    script = here / settings["entry_script"]
    is_module = not script.is_file()  # its name, such as pkg.main
    folder = here if is_module else script.parent
    sys.argv = [str(script), *settings["arguments"]]
    sys.path[0] = str(folder)  # in place of this program's folder
    if folder != here:
        sys.path.insert(1, str(here))
    sys.modules["azureml_user"] = types.ModuleType("azureml_user")
    sys.modules["azureml_user.parallel_run"] = user_module(settings["logging_level"])
    if is_module:
        module: Any = importlib.import_module(settings["entry_script"])
    else:
        found: Any = importlib.util.spec_from_file_location(script.stem, str(script))
        module = importlib.util.module_from_spec(found)
        sys.modules[script.stem] = module
        found.loader.exec_module(module)
    missing = [one for one in ("init", "run") if not callable(getattr(module, one, None))]
    if missing:
        raise AttributeError("{} has no function {}()".format(settings["entry_script"], missing[0]))
    return module


def user_module(level: str) -> types.ModuleType:
    """Make azureml_user.parallel_run, whose EntryScript gives entry scripts a logger and the working folder."""
    logging.basicConfig(level=level, format="%(asctime)s|%(levelname)s|%(process)d|%(message)s", stream=sys.stdout)

    class EntryScript:
        """What Azure ML offers to entry scripts by this name, as far as that is documented."""

        logger = logging.getLogger("entry_script")
        working_dir = str(Path.cwd())

        def log(self, message: str) -> None:
            self.logger.info(message)

    module = types.ModuleType("azureml_user.parallel_run")
    module.__dict__["EntryScript"] = EntryScript
    return module


def process(module: Any, order: Any, answer: Any, *, takes_context: bool, header: bool) -> Any:
    """Call run() with one mini batch; what it returns goes to a file, one line for each item."""
    index = order["index"]
    try:
        mini_batch = list(order["batch"])
        answer(what="started", index=index)
        context = (MiniBatchContext(order),) if takes_context else ()
        returned = module.run(mini_batch, *context)
        count, text, headed = as_text(returned, header=header)
        Path(order["results"]).write_bytes(text.encode())
    except Exception:  # noqa: BLE001 whatever the script raises, the next mini batch may be sound
        traceback.print_exc()
        return {"what": "failed", "index": index, "error": explain()}
    return {"what": "done", "index": index, "returned": count, "headed": headed}


def as_text(returned: Any, *, header: bool) -> Any:
    """The number of items that run() returned, these as lines, and whether the first is a header of a table."""
    if hasattr(returned, "to_csv") and hasattr(returned, "columns"):
        text = returned.to_csv(sep=" ", header=header, index=False) if len(returned.columns) else ""
        return len(returned), text, header and bool(text)
    if isinstance(returned, (str, bytes, dict)) or not hasattr(returned, "__len__"):
        kind = type(returned).__name__
        raise TypeError(f"run() returned a {kind}; it has to return a list, a tuple, an array or a DataFrame")
    return len(returned), "".join(f"{item}\n" for item in returned), False


def explain() -> str:
    """The last frames of an exception, for the report of the step."""
    return traceback.format_exc(limit=-5)


if __name__ == "__main__":
    main()
