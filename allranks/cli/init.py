"""``allranks init``: a component, a pipeline and an environment of a script of one's own, or of a template."""

from __future__ import annotations

import argparse
import ast
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from allranks import library
from allranks.cli import text
from allranks.cli.inputs import parse_scale
from allranks.errors import StorageError, UsageError
from allranks.files import write_files
from allranks.request import NOTEBOOK, is_script
from allranks.script.arguments import FoundArguments
from allranks.script.command import ScriptPort
from allranks.script.component import ScriptComponent
from allranks.script.launches import DISTRIBUTION_CHOICES, NO_DISTRIBUTION, RecognisedLaunch, recognise_launch
from allranks.script.packages import NeededPackages, needed_packages
from allranks.script.paths import FILE
from allranks.script.read_help import HELP_SECONDS, read_by_help
from allranks.script.reading import read_arguments
from allranks.script.sources import ScriptSource, read_script, with_local_modules
from allranks.script.templates import ScriptTemplate, find_template, template_lines

HELP = "write a component, a pipeline and an environment for a script of yours, or start from a template"

_SCALES = {"pytorch": (2, 2), "mpi": (2, 2), "tensorflow": (2, 1), "": (1, 1)}
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("script", metavar="SCRIPT", nargs="?", help="a script of Python, or a notebook")
    parser.add_argument(
        "--template", metavar="NAME", help="write a script of this shape too; `--template list` names all"
    )
    parser.add_argument("--out", metavar="DIR", help="where the files go (default: beside the script)")
    parser.add_argument("--distribution", metavar="KIND", default="", help="in place of what is recognised")
    parser.add_argument(
        "--subcommand", metavar="NAME", default="", help="with --by-help: the one to start, such as train"
    )
    parser.add_argument("--torchrun", action="store_true", help="one torchrun on each node, which starts the processes")
    parser.add_argument(
        "--scale", metavar="NxP", help="nodes, and processes on each, that the YAML says (default: 2x2)"
    )
    by_help = "run the script with --help and read what it prints, in place of reading its text"
    parser.add_argument("--by-help", action="store_true", help=by_help)
    parser.add_argument("--force", action="store_true", help="overwrite files that are there and differ")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


@dataclass(frozen=True, slots=True)
class _Written:
    """What is to be written, and what is said about it."""

    component: ScriptComponent
    files: dict[Path, str]
    unread: tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    """Read the script, write the files, all or none of them, then print what was read and the next command."""
    if args.template == "list":
        text.print_output(
            {"templates": template_lines()} if args.json else text.aligned_rows(list(template_lines().items()))
        )
        return 0
    if (args.script is None) == (args.template is None):
        raise UsageError(
            "give one of SCRIPT and --template NAME.", "`allranks init --template list` names the templates."
        )
    written = _of_template(args) if args.template else _of_script(args)
    changed = {path: new for path, new in written.files.items() if _present(path) != new}
    differing = [path for path in changed if os.path.lexists(path)]
    if differing and not args.force:
        listed = ", ".join(_shown(path) for path in differing[:_SHOWN])
        raise UsageError(
            f"there already, with other contents: {listed}.", "--force overwrites, --out DIR writes elsewhere."
        )
    try:
        write_files(changed)
    except OSError as error:
        raise StorageError(
            f"cannot write {error.filename}: {error.strerror}.", "Name another folder with --out."
        ) from None
    _print_result(args, written, list(changed))
    return 0


def _of_template(args: argparse.Namespace) -> _Written:
    template: ScriptTemplate = find_template(args.template)
    folder = Path(args.out or args.template)
    script = folder / template.file
    source = ScriptSource(script, template.text, ast.parse(template.text))
    written = _described(args, [source], folder, folder, template.uses_torchrun or args.torchrun)
    return _Written(written.component, {script: template.text, **written.files}, written.unread)


def _of_script(args: argparse.Namespace) -> _Written:
    if not is_script(args.script):
        hint = "`allranks init --template list` names scripts to begin with."
        raise UsageError(f"{args.script!r} is no script: its name ends neither in .py nor in .ipynb.", hint)
    script = Path(args.script).expanduser()
    source = read_script(script)
    code = script.parent
    folder = Path(args.out) if args.out else code
    if script.suffix == NOTEBOOK:
        made = folder / f"{script.stem}.py"
        written = _described(args, [ScriptSource(made, source.text, source.tree)], folder, folder, args.torchrun)
        return _Written(written.component, {made: source.text, **written.files}, written.unread)
    return _described(args, with_local_modules(source, code), code, folder, args.torchrun)


def _described(
    args: argparse.Namespace,
    sources: list[ScriptSource],
    code: Path,
    folder: Path,
    uses_torchrun: bool,  # noqa: FBT001
) -> _Written:
    launch = _launch(args.distribution, sources)
    if uses_torchrun and launch.distribution != "pytorch":
        raise UsageError(f"--torchrun: {launch.words}; torchrun starts ranks of PyTorch.", "Leave it out.")
    found = _arguments(args, sources, code, launch)
    packages = needed_packages(sources, code.resolve())
    environment, notes = _environment(packages)
    component = ScriptComponent(
        script=sources[0].path,
        code=code,
        folder=folder,
        launch=launch,
        arguments=tuple(found.arguments),
        packages=packages,
        scale=_scale(args.scale, launch.distribution),
        description=found.description,
        uses_torchrun=uses_torchrun,
        environment=environment,
        text="\n".join(source.text for source in sources),
        subcommand=found.subcommand,
        fixed=found.fixed,
    )
    return _Written(component, component.texts(), (*found.unread, *packages.notes, *notes))


def _arguments(
    args: argparse.Namespace, sources: list[ScriptSource], code: Path, launch: RecognisedLaunch
) -> FoundArguments:
    name = sources[0].path.name
    if args.by_help:
        text.print_note(f"{name} is run with --help, for at most {HELP_SECONDS:g} s each time.")
        asked = tuple(args.subcommand.split())
        return read_by_help(sources[0].path.resolve(), code, asked, on_ranks=launch.distribution == "pytorch")
    if args.subcommand:
        hint = f"`allranks init {name} --by-help --subcommand {args.subcommand}` runs `{name} --help` to read them."
        raise UsageError("--subcommand: subcommands are not read from the text of a script.", hint)
    return read_arguments(sources)


def _launch(asked: str, sources: list[ScriptSource]) -> RecognisedLaunch:
    if not asked:
        return recognise_launch(sources)
    if asked not in DISTRIBUTION_CHOICES:
        raise UsageError(f"--distribution {asked!r} is none of {', '.join(DISTRIBUTION_CHOICES)}.")
    return RecognisedLaunch("" if asked == NO_DISTRIBUTION else asked, "as asked for")


def _scale(asked: str | None, distribution: str) -> tuple[int, int]:
    if asked is None:
        return _SCALES[distribution]
    step, (nodes, processes) = parse_scale(asked)
    if step or nodes < 1 or processes < 1:
        raise UsageError(f"--scale {asked!r} is not NODESxPROCESSES.", "For example: --scale 2x4.")
    if not distribution and (nodes, processes) != (1, 1):
        raise UsageError(f"--scale {asked}: without a distribution there is one process.", "See --distribution.")
    if distribution == "tensorflow" and processes != 1:
        raise UsageError(f"--scale {asked}: TensorFlow has one worker on each node: {nodes}x1.")
    return nodes, processes


def _environment(packages: NeededPackages) -> tuple[str, list[str]]:
    """The library's environment with Horovod, where that is needed: pip has to compile it against MPI and torch."""
    if not packages.names("horovod"):
        return "", []
    note = "horovod has to be compiled: the environment is the library's, allranks-horovod (`allranks register`)."
    return f"azureml:allranks-horovod:{library.VERSION}", [note]


def _takes_file(port: ScriptPort) -> bool:
    return port.role is not None and port.role.type == FILE


def _present(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)


def _print_result(args: argparse.Namespace, written: _Written, changed: list[Path]) -> None:
    component = written.component
    ports = component.ports
    paths = [port for port in ports if port.role and not (port.is_output or port.is_optional or port.value)]
    needed = [f"{port.argument.name}={'FILE' if _takes_file(port) else 'FOLDER'}" for port in paths]
    needed += [f"{name}=VALUE" for name in component.open_values]
    command = " ".join(["allranks run", shlex.quote(_shown(component.folder)), *needed])
    if args.json:
        document = {
            "written": [str(path) for path in changed],
            "launch": component.launch.words,
            "subcommand": " ".join(component.subcommand),
            "inputs": [port.argument.name for port in component.ports if not port.is_output],
            "outputs": [port.argument.name for port in component.ports if port.is_output],
            "unread": list(written.unread),
            "next": command,
        }
        text.print_output(document)
        return
    for path in changed:
        print(f"wrote {_shown(path)}")
    if not changed:
        print("nothing to write: all files are there as they would be written")
    print(component.launch.words)
    if component.subcommand:
        print(f"subcommand: {' '.join(component.subcommand)}")
    inputs = [port.argument.name for port in component.ports if not port.is_output]
    outputs = [port.argument.name for port in component.ports if port.is_output]
    print(f"inputs: {', '.join(inputs) or 'none'}; outputs: {', '.join(outputs) or 'none'}")
    print(f"packages: from {component.packages.origin}")
    if component.open_values:
        listed = ", ".join(component.open_values)
        text.print_note(f"pipeline.yml is not written: a job needs a value of {listed}, and the script has no default.")
    for line in written.unread:
        text.print_note(line)
    print(f"\nnext: {command}")
