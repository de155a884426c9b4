"""The extras of pyproject.toml that stand for an environment each, made from its ``requirements.txt``."""

from __future__ import annotations

from allranks import catalogue

_EXTRAS = {
    "torch": "pytorch",
    "evaluate": "evaluate",
    "tensorflow": "tensorflow",
    "text": "transformers",
    "deepspeed": "deepspeed",
    "lightning": "lightning",
}
"""Extra to environment: whoever installs the extra can run the steps of the environment."""

_BEGIN = "# Made by `python -m allranks.renew` from environments/*/requirements.txt, so that neither drifts.\n"
_END = "# End of what is made.\n"


def with_extras(project: str) -> str:
    """The text of pyproject.toml with these extras as the environments have them."""
    before, _, rest = project.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + "".join(_extra(extra, name) for extra, name in _EXTRAS.items()) + _END + after


def _extra(extra: str, environment: str) -> str:
    requirements = catalogue.environment_files()[environment].parent / "requirements.txt"
    lines = requirements.read_text(encoding="utf-8").splitlines()
    found = [line.partition("#") for line in lines if line and not line.startswith("#")]
    body = "".join(f'    "{text.strip()}",{f" # {comment.strip()}" if comment else ""}\n' for text, _, comment in found)
    return f"{extra} = [ # environments/{environment}\n{body}]\n"
