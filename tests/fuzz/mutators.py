"""One mutant of a file, made from its content by a random generator: the same generator gives the same mutant."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308),
    *("", " ", "x", "\0", "../..", "/etc/passwd", "é", "\ud800", "nan", "-inf", "1e999", "x" * 5000, "${{", "{{"),
    *("${{parent.inputs.n}}", "$[[${{inputs.x}}]]", "azureml:x:1", "azureml://x", "file:x", "a\nb"),
    *([], {}, [[]], [1, {}], {"": None}, {"type": 5}, {"path": []}, [None] * 300),
)
ODD_TEXTS = (
    *(".inf", "-.inf", ".nan", "~", "null", "yes", "0x" + "f" * 300, "9" * 5000, "1e999", "2026-01-01", "!!python/x y"),
    *("*a", "&a x", "&a [*a]", "<<: *a", "? x", "- " * 200, "[" * 300, "{a: " * 150, "'", '"', "|", ">", "---", "..."),
    *("\0", "\t", "\u2028", "\x85", "\ufeff", "\x1b[2J", "#", "@x", "`x`", ": ", "${{inputs.x}}", "$[[", "]]", "~/x"),
    *("../" * 50, "//x", "\t:-{}[]&*!|>", "  ", "\n"),
)
_NUMBERS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"9" * 20,
)
_WORD = re.compile(r"[^\s,:{}\[\]'\"]+")


def mutate_bytes(content: bytes, chance: random.Random) -> bytes:
    """Flip, remove, repeat, replace, insert or cut, a few times; half of it near the front, where headers are."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        end = min(len(found), 256) if chance.random() < 0.5 else len(found)
        at = chance.randrange(end) if end else 0
        size = chance.choice((1, 1, 2, 4, 8, 64, 1000))
        number = chance.choice(_NUMBERS)
        match chance.randrange(6):
            case 0 if found:
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size] * chance.choice((1, 2, 50))
            case 3:
                found[at : at + len(number)] = number
            case 4:
                found[at:at] = chance.randbytes(size)
            case _:
                del found[at:]
    return bytes(found)


def mutate_text(content: bytes, chance: random.Random) -> bytes:
    """Remove, repeat, swap and indent lines, and replace words by others or by odd ones."""
    lines = content.decode("utf-8", "replace").splitlines(keepends=True) or [""]
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        words = [*_WORD.finditer(lines[at])]
        match chance.randrange(6):
            case 0:
                lines[at] = chance.choice(("  ", "\t", "- ", "")) + lines[at][chance.randrange(3) :]
            case 1:
                lines[at : at + 1] = [lines[at]] * chance.choice((0, 2, 100)) or [""]
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _ if words:
                word, others = chance.choice(words), _WORD.findall(lines[other])
                new = chance.choice(others) if others and chance.random() < 0.3 else chance.choice(ODD_TEXTS)
                lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
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
        places = [*_places(document)]
        if not places or chance.random() < 0.01:
            document = chance.choice(ODD_VALUES)
            break
        holder, key = chance.choice(places)
        value = holder.pop(key)
        if chance.random() < 0.2 and isinstance(holder, dict):
            holder[str(chance.choice(ODD_VALUES))[:50]] = value
        elif chance.random() < 0.75:
            odd = json.loads(json.dumps(chance.choice(ODD_VALUES)))
            holder.insert(key, odd) if isinstance(holder, list) else holder.update({key: odd})
    lines[at] = json.dumps(document).encode()
    return b"\n".join(lines)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with each of its keys."""
    if not isinstance(value, dict | list):
        return []
    keys = [*value] if isinstance(value, dict) else [*range(len(value))]
    return [(value, key) for key in keys] + [place for key in keys for place in _places(value[key])]


def mutate_file(path: Path, chance: random.Random) -> None:
    """Mutate a file in place, by what its name says it is; rarely put something else in its place."""
    content = path.read_bytes()
    if chance.random() < 0.02:
        path.unlink()
        _put_something_else(path, chance)
    elif path.suffix in (".json", ".jsonl") and chance.random() < 0.6:
        path.write_bytes(mutate_json(content, chance))
    elif path.suffix in (".json", ".jsonl", ".yaml", ".csv", ".txt") and chance.random() < 0.8:
        path.write_bytes(mutate_text(content, chance))
    else:
        path.write_bytes(mutate_bytes(content, chance))


def _put_something_else(path: Path, chance: random.Random) -> None:
    match chance.randrange(5):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.write_bytes(b"")
        case 3:
            Path(os.fsdecode(os.fsencode(path.parent) + b"/\xff\xfe" + os.fsencode(path.name))).touch()
        case _:
            path.symlink_to(chance.choice((path.name, "not-there", "/dev/zero")))
