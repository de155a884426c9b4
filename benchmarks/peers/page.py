"""The page of the comparison with other tools, docs/benchmarks.md, and its picture, out of the figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from peers.chains import CHAINS, ROOT
from side_by_side import hardware

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "peers.svg"
_OURS, _OTHERS, _INK = "#1a5fd0", "#9aa3b2", "#596273"

_HEAD = """# How long it takes beside other tools

<!-- Written by `make bench`: measure again instead of changing it. -->

The same chains of steps, each after the one before, with nothing reused: seconds that pass, as least, median and most
of the rounds, the processor's seconds at the median, and the medians of the rounds' ratios. All ways run in turn, round
after round, on one machine; on a shared one only the ratios mean much.

- *Null steps* do nothing: a shell with `true` for allranks, the shell and TorchX, an empty function for the others.
- *prepare, train* is `prepare_data` and `train_ddp` of the library, on its digits, five epochs, each on two ranks.
  allranks starts the ranks itself; all other ways run the same scripts with torchrun.
- *evaluate* is the library's component too, on two ranks; with it the three are the pipeline `image_classification`.
- *shell, Python with yaml* is the shell after a Python has once imported yaml: what a tool in Python that reads a
  pipeline cannot go below.
"""

_FOOT = """
What each tool is given is in `benchmarks/peers/`, at its fastest: kfp's local runner without an environment and an
installation for each step, TorchX with a look at its step each 10 ms in the place of 10 s. The local process backend of
Kubeflow Trainer is not here: it knows single jobs and no chains, and installs torch anew for each.
"""


def write_page(table: Sequence[Mapping[str, Any]], versions: Mapping[str, str]) -> None:
    """Write the page and the picture."""
    draw_picture(table)
    machine = hardware()
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    measured = (
        f"Measured on {time.strftime('%Y-%m-%d')} by `make bench`: {machine['cores']} cores ({machine['cpu']}), "
        f"Python {machine['python']}, load {machine['load_before']} at the end; {told}.\n"
    )
    picture = "![Seconds of each chain with each tool](pictures/peers.svg)\n"
    parts = [_HEAD, measured, picture, *(chain_table(title, table) for title in measured_chains(table))]
    PAGE.write_text("\n".join(parts) + _FOOT)


def measured_chains(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Titles of the chains of which there are figures."""
    return [chain.title for chain in CHAINS if any(row["chain"] == chain.title for row in table)]


def chain_table(title: str, table: Sequence[Mapping[str, Any]]) -> str:
    """One chain's rows."""
    rows = [row for row in table if row["chain"] == title]
    lines = [
        f"## {title}\n",
        "| tool | rounds | least | median | most | processor | of the shell | its processor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = " | ".join(f"{value:.2f} s" for value in row["wall"])
        ratios = " | ".join(f"{row[f'{what}_of_shell']:.2f}" for what in ("wall", "processor"))
        lines.append(f"| {row['tool']} | {row['rounds']} | {seconds} | {row['processor'][1]:.2f} s | {ratios} |")
    floor = [row for row in rows if row["tool"] == "allranks" and "wall_of_yaml" in row]
    if floor:
        lines.append(
            f"\nallranks, of the shell with Python and yaml: {floor[0]['wall_of_yaml']:.2f} of its seconds, "
            f"{floor[0]['processor_of_yaml']:.2f} of the processor's."
        )
    return "\n".join(lines) + "\n"


def draw_picture(table: Sequence[Mapping[str, Any]]) -> None:
    """Draw a panel for each chain: medians as bars, least and most as lines."""
    titles = measured_chains(table)
    figure = Figure(figsize=(9.5, 2.1 * len(titles)), layout="constrained")
    for place, title in enumerate(titles, start=1):
        axes = figure.add_subplot(len(titles), 1, place)
        rows = [row for row in table if row["chain"] == title][::-1]
        least, median, most = zip(*(row["wall"] for row in rows), strict=True)
        colors = [_OURS if row["tool"].startswith("allranks") else _OTHERS for row in rows]
        around = [
            [middle - low for middle, low in zip(median, least, strict=True)],
            [high - middle for middle, high in zip(median, most, strict=True)],
        ]
        axes.barh([row["tool"] for row in rows], median, color=colors, xerr=around, ecolor=_INK, capsize=2)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("seconds: median, least and most", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})
