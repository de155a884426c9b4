"""The fenced blocks of the pages, and how each command in them is proved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SHOWN = ("python", "yaml", "text")
"""Languages of blocks that hold no commands (text is what is printed): their syntax is tested, and tests/test_pages.py has what the pages promise."""

HOW = {
    # What the installation is made with.
    r"(python -m )?pip install .*": "install",
    r"python environments/install_torch\.py .*": "install",
    r"python3? -m venv .*|\. \S+/bin/activate": "install",
    # As they stand; `run` trains for real, and what trains long is only planned, from data to the last command.
    r"allranks (list|runs|show \w+|copy train_ddp \S+|lint my_pipeline\.yml|run --resume latest)": "run",
    r"ALLRANKS_BUDGET=\S+ allranks .*": "no: a shell reads what stands in front; tests/spec/test_budget.py sets it",
    r"allranks runs logs latest train --rank 1": "no: it names the reader's own run; docs/why-it-failed.md types it of one",
    r"allranks runs serve": "no: it serves until Ctrl+C; tests/browser starts it and looks at its pages",
    r"allranks runs list .*": "no: it sorts the reader's own runs; tests/cli/test_run_list.py lists a thousand",
    r"allranks runs compare .*": "no: it names the reader's own runs; tests/cli/test_compare.py compares two",
    r"allranks run my_pipeline\.yml --dry-run": "mapped",  # the next line on the page says what a cloud's data needs
    r"allranks run my_pipeline\.yml .*": "run",
    r"allranks drill .*": "no: it trains at least twice; tests/drill strikes smaller steps, with real processes",
    r"allranks run train\.py --scale 1x2": "no: it is the reader's own script; tests/local run others",
    r"allranks run check_cluster .*": "train",
    r"allranks (doctor|completion bash)": "run",
    r"allranks run image_classification epochs=5 --scale train=1x4": "train",
    r"allranks run image_classification dataset=.*": "plan",
    r"allranks run (language_model|finetune_text|compare_frameworks)": "plan",
    r"allranks run (train|evaluate|prepare|compare)_?\w* .*": "plan",
    r"allranks (submit|register) (\.|mine\S*) .*": "no: they need the folder that the page has made; tests/azure/test_register_own.py has one",
    # With Azure's SDK, against the stand-in of tests/azure.
    r"allranks (register|submit|lint --designer) .*": "azure",
    r"allranks runs (--azure|(show|watch|logs|cancel) .*)": "azure",
    # Not by these tests, with the reason.
    r"make run": "no: .ci/run runs it in a clean copy, with the environment that it makes itself",
    r"make (test|check)": "no: it is what runs these tests",
    r"make [a-z-]+( .*)?": "no: tests/test_docs.py sees that the target exists; it takes many minutes",
    r"az login": "no: it asks a person to sign in",
    r"az ml compute create --file environments/clusters/.*": "no: it is Azure's own tool; tests/azure/test_clusters.py loads the files",
    r"allranks env build .*": "no: gigabytes are downloaded; tests/environments builds environments, tests/cli/test_env.py runs it",
}
"""What matches a whole command, and how it is proved; the first that matches holds."""

LAYOUTS = {
    ("docs/README.md", "components/train_ddp/component.yaml    the promise: inputs, outputs, how many ranks, the command"):
        "no: a picture of folders, no command",
}  # fmt: skip
"""Blocks without a language that are no commands, by their page and first line."""

WITHOUT_LINE = {"docs/registering.md": "azure", "docs/sizes.md": "azure"}
"""Extras of pages that prescribe none but lead to docs/azure.md; the others lead to the README's ``local``."""

TYPED = "docs/your-own.md"
SCRIPT_PAGE = "docs/my-script.md"
FAILED_PAGE = "docs/why-it-failed.md"
"""The pages that are typed from top to bottom, with the files that they show."""
JOURNEYS_PAGE = "docs/journeys.md"
"""What it types of a script is what SCRIPT_PAGE types, in the same test; its cells are those of a notebook."""


@dataclass(frozen=True)
class Command:
    """One command of a page.

    Attributes:
        page: its path in the repository.
        text: the command without the comment behind it.
        extras: what the page has prescribed until there, sorted and joined by commas.
        how: how it is proved; empty if that is said nowhere.
    """

    page: str
    text: str
    extras: str
    how: str


def blocks_of(page: Path) -> Iterator[tuple[int, str, str]]:
    """Where each fenced block of a page begins (a character), its language and what is in it."""
    for block in re.finditer(r"^( *)```(\{?\w*)[^\n]*\n(.*?)^\1```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        if not block[2].startswith("{"):  # what the site's builder is told, no text of the page
            yield block.start(), block[2], block[3]


def commands_of(page: Path) -> Iterator[Command]:
    """The commands of a page, from top to bottom."""
    name, whole = str(page.relative_to(ROOT)), page.read_text()
    for start, language, text in blocks_of(page):
        if language in SHOWN or (name, text.splitlines()[0]) in LAYOUTS:
            continue
        extras = re.findall(r"(?:allranks|[\"']\.)\[([\w,]+)\]", whole[:start] + text)
        given = extras[-1] if extras else WITHOUT_LINE.get(name, "local")
        for line in text.replace("\\\n", " ").splitlines():
            command = re.sub(r"(^|\s+)#.*", "", line).strip()
            if command:
                how = next((how for pattern, how in HOW.items() if re.fullmatch(pattern, command)), "")
                how = (
                    "typed"
                    if name in (TYPED, SCRIPT_PAGE, FAILED_PAGE, JOURNEYS_PAGE)
                    and how != "install"
                    and how[:3] != "no:"
                    else how
                )
                yield Command(name, command, ",".join(sorted(given.split(","))), how)


COMMANDS = [command for page in PAGES for command in commands_of(page)]
