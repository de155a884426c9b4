"""One mutant of a file, made from its content by a random generator: the same generator gives the same mutant."""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308),
    *("", " ", "x", "\0", "../..", "/etc/passwd", "é", "\ud800", "nan", "-inf", "1e999", "x" * 5000, "${{", "{{"),
    *("${{parent.inputs.n}}", "$[[${{inputs.x}}]]", "azureml:x:1", "azureml://x", "file:x", "a\nb"),
    *([], {}, [[]], [1, {}], {"": None}, {"type": 5}, {"path": []}, [None] * 300),
)
ODD_TEXTS = (
    *(
        ".inf",
        "-.inf",
        ".nan",
        "~",
        "null",
        "yes",
        "0x" + "f" * 300,
        "9" * 5000,
        "1e999",
        "2026-01-01",
        "!!int x",
        "!!python/x y",
    ),
    *(
        "*a",
        "&a x",
        "&a [*a]",
        "<<: *a",
        "? x",
        "- " * 200,
        "[" * 300,
        "{a: " * 150,
        "'",
        '"',
        "|",
        ">",
        "%YAML 1.1",
        "---",
        "...",
    ),
    *(
        "\0",
        "\t",
        "\u2028",
        "\x85",
        "\ufeff",
        "\x1b[2J",
        "#",
        "@x",
        "`x`",
        ": ",
        "${{inputs.x}}",
        "$[[",
        "]]",
        "../" * 50,
        "~/x",
        "//x",
    ),
)
_NUMBERS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"9" * 20,
    b"-1",
)


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Flip, replace, remove, repeat, insert or cut, a few times; half of it near the front, where headers are."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        end = min(len(found), 256) if chance.random() < 0.5 else len(found)
        at = chance.randrange(end) if end else 0
        size = chance.choice((1, 1, 2, 4, 8, 64, 1000))
        match chance.randrange(7):
            case 0 if found:
                found[at] ^= 1 << chance.randrange(8)
            case 1 if found:
                found[at] = chance.randrange(256)
            case 2:
                del found[at : at + size]
            case 3:
                found[at:at] = found[at : at + size] * chance.choice((1, 2, 50))
            case 4:
                number = chance.choice(_NUMBERS)
                found[at : at + len(number)] = number
            case 5:
                found[at:at] = chance.randbytes(size)
            case _:
                del found[at if chance.random() < 0.5 else len(found) - min(size, len(found)) :]
    return bytes(found)


def mutate_text(content: bytes, chance: random.Random) -> bytes:
    """Change lines, words and indents of a text, as somebody who edits it in a hurry, or with an intent."""
    lines = content.decode("utf-8", "replace").splitlines(keepends=True) or [""]
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at = chance.randrange(len(lines))
        line = lines[at]
        words = [*re.finditer(r"[^\s,:{}\[\]'\"]+", line)]
        match chance.randrange(9):
            case 0:
                lines[at] = chance.choice(("  ", " ", "\t", "- ")) + line
            case 1:
                lines[at] = line[chance.randrange(1, 5) :]
            case 2 if len(lines) > 1:
                del lines[at]
            case 3:
                lines[at:at] = [line] * chance.choice((1, 2, 100))
            case 4:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 5 if len(line) > 1:
                cut = chance.randrange(len(line))
                lines[at] = (
                    line[:cut] + chance.choice("\t:-{}[]&*!|>'\"%@`#\n x\0,") + line[cut + chance.randrange(2) :]
                )
            case 6 if words:
                other = [*re.finditer(r"[^\s,:{}\[\]'\"]+", chance.choice(lines))]
                word, new = chance.choice(words), chance.choice(other).group() if other else ""
                lines[at] = line[: word.start()] + new + line[word.end() :]
            case _ if words:
                word = chance.choice(words)
                lines[at] = line[: word.start()] + chance.choice(ODD_TEXTS) + line[word.end() :]
            case _:
                lines[at] = chance.choice(ODD_TEXTS) + "\n"
    return "".join(lines).encode("utf-8", "surrogatepass")


def mutate_json(content: bytes, chance: random.Random) -> bytes:
    """Change values and keys of a JSON document; of JSON lines those of one line."""
    lines = content.splitlines() if content.count(b"}\n{") else [content]
    at = chance.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return mutate_text(content, chance)
    for _ in range(chance.choice((1, 1, 2, 4))):
        document = _changed(document, chance)
    lines[at] = json.dumps(document).encode()
    return b"\n".join(lines)


def _changed(document: Any, chance: random.Random) -> Any:
    places: list[tuple[Any, Any]] = []
    waiting = [document] if isinstance(document, (dict, list)) else []
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        places += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], (dict, list))]
    if not places or chance.random() < 0.01:
        return copy.deepcopy(chance.choice(ODD_VALUES))
    holder, key = chance.choice(places)
    action = chance.randrange(5)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[str(chance.choice(ODD_VALUES))[:50]] = holder.pop(key)
    elif action == 2:
        other, name = chance.choice(places)
        if name in other if isinstance(other, dict) else name < len(other):
            holder[key] = json.loads(json.dumps(other[name]))
    else:
        holder[key] = copy.deepcopy(chance.choice(ODD_VALUES))
    return document


def mutate_file(path: Path, chance: random.Random) -> None:
    """Mutate a file in place, by what its name says it is; rarely put something else in its place."""
    if chance.random() < 0.02:
        _replace(path, chance)
        return
    content = path.read_bytes()
    is_packed = path.suffix == ".gz" and chance.random() < 0.6
    if is_packed:
        with suppress(OSError, EOFError, zlib.error):
            content = gzip.decompress(content)
    content = _mutator(path, chance)(content, chance)
    path.write_bytes(gzip.compress(content, 1) if is_packed else content)


def _mutator(path: Path, chance: random.Random) -> Callable[[bytes, random.Random], bytes]:
    name = path.name.removesuffix(".gz")
    if name.endswith((".json", ".jsonl")) and chance.random() < 0.6:
        return mutate_json
    if name.endswith((".json", ".jsonl", ".yaml", ".yml", ".csv", ".txt", ".py")) and chance.random() < 0.8:
        return mutate_text
    return mutate_bytes


def _replace(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.unlink()
    match chance.randrange(7):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.symlink_to("not-there")
        case 4:
            path.write_bytes(b"")
        case 5:
            Path(os.fsdecode(os.fsencode(path.parent) + b"/\xff\xfe" + os.fsencode(path.name))).write_bytes(content)
        case _:
            path.symlink_to("/dev/zero")
