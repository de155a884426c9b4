"""A chain with TorchX's local_cwd scheduler: an application for each step, waited for in looks of 10 ms.

Its own default looks every 10 s.
"""

import json
import sys
from pathlib import Path

from torchx.runner import get_runner
from torchx.specs import AppDef, AppState, Role

with get_runner() as runner:
    for step in json.loads(Path(sys.argv[1]).read_text()):
        command = step["command"] or ["true"]
        script = [f'cd {step["folder"]} && exec "$@"', "step", *command] if step["folder"] else []
        entry, words = ("bash", ["-c", *script]) if script else (command[0], command[1:])
        role = Role(name="step", image="", entrypoint=entry, args=words, num_replicas=1)
        handle = runner.run(AppDef(name=step["name"], roles=[role]), "local_cwd", {"log_dir": sys.argv[2]})
        status = runner.wait(handle, wait_interval=0.01)
        if status is None or status.state != AppState.SUCCEEDED:
            sys.exit(f"{step['name']}: {status}")
