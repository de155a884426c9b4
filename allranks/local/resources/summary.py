"""What a step has used, for people and programs: peaks, means and sums by rank, and the same over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allranks.local.curves import thin_curve
from allranks.local.folders import RunFolder
from allranks.local.logged import MetricCurve
from allranks.local.resources.samples import ResourceSample, read_samples

CHARTS = {
    "cores": ("processor cores in use", "cores"),
    "memory": ("memory", "GB"),
    "read": ("read", "MB/s"),
    "written": ("written", "MB/s"),
    "gpu_use": ("GPU in use", "share"),
    "gpu_memory": ("GPU memory", "GB"),
}
"""What is told over the seconds since the step began: what a person calls it, and its unit."""

MOST_RANKS = 8
"""Of which there are curves and lines for people: those with the highest peaks of memory."""

_MOST_POINTS = 250  # of one curve
_SUMS = ("cpu_seconds", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes")

ResourceCurves = dict[str, dict[str, MetricCurve]]
"""By what is told (``CHARTS``) and by whose it is: ``(seconds since the step began, value)``."""


def read_step_samples(run: RunFolder, step: str) -> list[ResourceSample]:
    """The lines of a step where it was executed: a reused one in an earlier run, a sweep's best trial in its folder."""
    folder = run.step(step)
    own = read_samples(folder.resources)
    return own or (read_samples(run.executed(step).resources) if folder.logs.is_symlink() else [])


def step_resources(run: RunFolder, step: str) -> tuple[dict[str, Any], ResourceCurves]:
    """What a step has used, as ``summarise_samples`` says it, and its curves, thinned."""
    samples = read_step_samples(run, step)
    found = summarise_samples(samples)
    return found, resource_curves(samples, highest_ranks(found))


def summarise_samples(samples: Sequence[ResourceSample]) -> dict[str, Any]:
    """Of the step and under ``ranks``, ``launcher`` and ``gpus``; a ``note`` of what is not measured; {} of nothing.

    ``memory_peak_bytes`` is the highest resident memory at a look, or what the kernel says of the largest process where
    that is more; None where no look came in time. ``cores_mean`` is over all attempts, and so are the sums.
    """
    notes = [{"note": sample["note"]} for sample in samples if sample["of"] == "note"]
    whole = [sample for sample in samples if sample["of"] == "step"]
    if not whole:
        return dict(notes[0]) if notes else {}
    ranks = _by_name(samples, "rank")
    launcher = [sample for sample in samples if sample["of"] == "launcher"]
    gpus = _by_name(samples, "gpu")
    return {
        **_summary(whole),
        "ranks": {rank: {"node": own[-1]["node"], **_summary(own)} for rank, own in ranks.items()},
        **({"launcher": _summary(launcher)} if launcher else {}),
        **({"gpus": {gpu: _gpu_summary(own) for gpu, own in gpus.items()}} if gpus else {}),
    }


def highest_ranks(resources: Mapping[str, Any]) -> list[str]:
    """The ranks of a summary with the highest peaks of memory, at most so many, in their own order."""
    ranks = resources.get("ranks", {})
    highest = sorted(ranks, key=lambda rank: -(ranks[rank]["memory_peak_bytes"] or 0))[:MOST_RANKS]
    return sorted(highest, key=int)


def _by_name(samples: Sequence[ResourceSample], of: str) -> dict[str, list[ResourceSample]]:
    found: dict[str, list[ResourceSample]] = {}
    for sample in samples:
        if sample["of"] == of:
            found.setdefault(str(sample[of]), []).append(sample)
    return dict(sorted(found.items(), key=lambda one: int(one[0])))


def _summary(own: Sequence[ResourceSample]) -> dict[str, Any]:
    seconds = sum(sample["over"] for sample in own)
    peaks = [sample[key] for sample in own for key in ("rss_bytes", "peak_bytes") if key in sample]
    looked = [sample for sample in own if "rss_bytes" in sample]
    return {
        "seconds": round(seconds, 3),
        "cores_mean": round(sum(sample["cpu_seconds"] for sample in own) / seconds, 3),
        "memory_peak_bytes": max(peaks, default=None),
        **{key: round(sum(sample[key] for sample in own), 3) for key in _SUMS},
        "processes_peak": max((sample["processes"] for sample in looked), default=None),
        "threads_peak": max((sample["threads"] for sample in looked), default=None),
    }


def _gpu_summary(own: Sequence[ResourceSample]) -> dict[str, Any]:
    seconds = sum(sample["over"] for sample in own)
    return {
        "use_mean": round(sum(sample["gpu_seconds"] for sample in own) / seconds, 3),
        "memory_peak_bytes": max(sample["gpu_memory_bytes"] for sample in own),
    }


def resource_curves(samples: Sequence[ResourceSample], ranks: Sequence[str]) -> ResourceCurves:
    """The curves of these ranks, of what starts them and of the GPUs; see ``CHARTS``."""
    found: ResourceCurves = {}
    for sample in samples:
        name = _curve_name(sample)
        if sample["of"] == "gpu" or sample["of"] == "launcher" or str(sample.get("rank")) in ranks:
            for curve, value in _values(sample).items():
                found.setdefault(curve, {}).setdefault(name, []).append((float(sample["at"]), round(value, 4)))
    return {
        curve: {name: thin_curve(points, _MOST_POINTS) for name, points in found[curve].items()}
        for curve in CHARTS
        if curve in found
    }


def _curve_name(sample: ResourceSample) -> str:
    of = str(sample["of"])
    return of if of == "launcher" else f"{of} {sample.get(of)}"


def _values(sample: ResourceSample) -> dict[str, float]:
    over = sample["over"]
    if sample["of"] == "gpu":
        return {"gpu_use": sample["gpu_seconds"] / over, "gpu_memory": sample["gpu_memory_bytes"] / 1e9}
    return {
        "cores": sample["cpu_seconds"] / over,
        **({"memory": sample["rss_bytes"] / 1e9} if "rss_bytes" in sample else {}),
        "read": sample["read_bytes"] / over / 1e6,
        "written": sample["written_bytes"] / over / 1e6,
    }
