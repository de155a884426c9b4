"""``make fuzz``: thousands of mutants, a report, and each mutant that went wrong as a folder with the call that repeats it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fuzz.catalogue import ALL_TARGETS
from tests.fuzz.runner import Report, make_mutant, run_mutants


def main() -> int:
    """Read the mutants that the command line asks for; 1 if something went wrong with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--yaml", type=int, default=10_000, help="mutated YAML documents")
    parser.add_argument("--data", type=int, default=10_000, help="mutated data files, over all their targets")
    parser.add_argument(
        "--folders", type=int, default=3_000, help="mutated folders that the tool reads, over all their targets"
    )
    parser.add_argument("--models", type=int, default=3_000, help="mutated models and reports, over all their targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder of the mutants that went wrong")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--target", choices=ALL_TARGETS, nargs="+", help="these alone")
    parser.add_argument("--mutant", type=int, help="this mutant of the target alone")
    args = parser.parse_args()
    chosen = [ALL_TARGETS[name] for name in args.target] if args.target else list(ALL_TARGETS.values())
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        for target in chosen:
            of_group = [one for one in chosen if one.group == target.group]
            count = -(-getattr(args, target.group) // len(of_group))
            numbers = range(count) if args.mutant is None else [args.mutant]
            if not numbers:
                continue
            report = run_mutants(target, numbers, args.seed, Path(scratch), workers=args.workers)
            _print(report)
            for finding in report.findings:
                place = args.keep / f"{target.name}-{args.seed}-{finding.number}"
                shutil.rmtree(place, ignore_errors=True)
                make_mutant(target, Path(scratch) / f"{target.name}.seeds", place, args.seed, finding.number)
                again = f"python -m tests.fuzz --seed {args.seed} --target {target.name} --mutant {finding.number}"
                print(
                    f"  {finding.kind}: {finding.what.strip().splitlines()[-1][:300]}\n    {place}\n    {again}",
                    flush=True,
                )
                if args.mutant is not None:
                    print(finding.what)
            bad += len(report.findings)
    print(f"{bad} mutants went wrong" if bad else "nothing went wrong")
    return 1 if bad else 0


def _print(report: Report) -> None:
    print(
        f"{report.target}: {report.count:,} mutants in {report.seconds:.0f} s, the slowest {report.slowest:.2f} s, "
        f"the largest {report.largest / 2**20:.0f} MiB, {len(report.findings)} went wrong",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
