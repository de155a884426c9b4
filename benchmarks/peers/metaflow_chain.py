"""A chain with Metaflow: it reads its steps out of the text of a flow, so this writes one, for `python FLOW run`."""

from __future__ import annotations

from pathlib import Path

from peers.chains import ChainStep

_HEAD = """import subprocess

from metaflow import FlowSpec, step


class ChainFlow(FlowSpec):
"""


def write_flow(steps: list[ChainStep], file: Path) -> None:
    """Write the flow of some steps, whose first one Metaflow wants to be named start and whose last one end."""
    names = ["start", *(step.name for step in steps[1:-1]), "end"]
    parts = [_HEAD]
    for number, (name, step) in enumerate(zip(names, steps, strict=True)):
        lines = ["@step", f"def {name}(self):"]
        if step.command:
            lines.append(f"    subprocess.run({list(step.command)!r}, cwd={step.folder!r}, check=True)")
        lines.append(f"    self.next(self.{names[number + 1]})" if number + 1 < len(names) else "    pass")
        parts.append("".join(f"    {line}\n" for line in lines))
    parts.append('if __name__ == "__main__":\n    ChainFlow()\n')
    file.write_text("\n".join(parts))
