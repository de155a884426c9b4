"""The library's own components and pipelines, and what the tests have of other forms, in one folder without folders."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers import ROOT
from tests.spec.mutations import FILES
from tests.spec.test_robust import PIPELINE


def write_yaml_seeds(folder: Path) -> None:
    """Write them; what they name beside them lies in the folder, as far as it is small."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "robust.yaml").write_text(PIPELINE)
    names = [path.name for path in sorted((ROOT / "components").iterdir()) if (path / "component.yaml").is_file()]
    for name in names:
        text = (ROOT / "components" / name / "component.yaml").read_text()
        text = re.sub(r"^additional_includes:.*?(?=^\S)", "", text, flags=re.MULTILINE | re.DOTALL)
        (folder / f"component_{name}.yaml").write_text(re.sub(r"^code:.*$", "code: ./src", text, flags=re.MULTILINE))
    for path in sorted((ROOT / "pipelines").glob("*.yaml")):
        text = re.sub(r"\.\./components/(\w+)/component\.yaml", r"./component_\1.yaml", path.read_text())
        (folder / f"pipeline_{path.name}").write_text(text)
