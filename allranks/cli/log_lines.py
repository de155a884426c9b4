"""From the bytes that a rank prints to lines that can be shown: whole, redrawn ones as they were last, without junk."""

from __future__ import annotations

from itertools import islice

from allranks.log_text import clean_text
from allranks.redaction import redact

_LONGEST = 2**16  # bytes of a line; a longer one is shown in parts
_QUIET_SECONDS = 1.0  # after which a line without an end is shown as far as it is
_REDRAWN_SECONDS = 10.0  # and one that is drawn again and again, as progress bars are

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONGEST_SHAPE, _MOST_SHAPES, _LEARNT_AT_ONCE = 1000, 4096, 20
"""Looking for secrets takes longer than all else, up to a second for a megabyte. No secret is told by which digits it
has, but for ``%3D`` in addresses: so what differs from a line without one in digits only has none."""


class LogLines:
    """Takes the bytes of one log and gives its lines; of what has no end yet at most 64 KiB are kept.

    ``styled`` keeps colours. Secrets are blotted out.
    """

    def __init__(self, *, styled: bool = False) -> None:
        self._styled = styled
        self._rest = b""
        self._grew = self._shown = 0.0
        self._plain: set[bytes] = set()
        self._is_begun = False  # a part of the line that goes on has been shown

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that are whole now; ``now`` in seconds of any clock."""
        whole, end, rest = (self._rest + data).rpartition(b"\n")
        found = self._lines(whole, is_end=True) if end else []
        if len(rest) > _LONGEST:
            rest = _last_drawn(rest)
        while len(rest) > _LONGEST:
            cut = _character_before(rest, _LONGEST)
            found += self._lines(rest[:cut], is_end=False)
            rest = rest[cut:]
        if rest != self._rest or end:
            self._grew = now
        if not self._rest or end:
            self._shown = now
        self._rest = rest
        return found

    def late(self, now: float) -> list[str]:
        """The line that has no end, where it has been quiet for a second, or redrawn for ten."""
        if not self._rest:
            return []
        is_redrawn = b"\r" in self._rest.rstrip(b"\r")
        is_late = now - self._grew >= _QUIET_SECONDS or (is_redrawn and now - self._shown >= _REDRAWN_SECONDS)
        return self._take_rest() if is_late else []

    def end(self) -> list[str]:
        """What is left when nothing will follow."""
        return self._take_rest() if self._rest else []

    def _take_rest(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return self._lines(rest, is_end=False)

    def _lines(self, data: bytes, *, is_end: bool) -> list[str]:
        lines = self._shown_lines(data)
        if self._is_begun and is_end and not lines[0]:
            lines = lines[1:]  # only the end of a line that has been shown
        self._is_begun = not is_end
        return lines

    def _shown_lines(self, data: bytes) -> list[str]:
        shapes = data.translate(_ZEROS).split(b"\n")
        if self._plain.issuperset(shapes):
            return data.decode(errors="replace").split("\n")
        lines = data.split(b"\n")
        unknown = [at for at, shape in enumerate(shapes) if shape not in self._plain]
        decoded = [line.decode(errors="replace") for line in lines]
        shown = redact(self._clean([decoded[at] for at in unknown])).split("\n")
        if len(shown) != len(unknown):  # a private key, the one secret of several lines
            return redact(self._clean(decoded)).split("\n")
        self._learn({shapes[at] for at, line in zip(unknown, shown, strict=True) if line == decoded[at]})
        for at, line in zip(unknown, shown, strict=True):
            decoded[at] = line
        return decoded

    def _clean(self, lines: list[str]) -> str:
        return clean_text("\n".join(lines), styled=self._styled)

    def _learn(self, shapes: set[bytes]) -> None:
        """Remember some lines that are shown as they were written, so that others like them need not be looked at."""
        for shape in islice(shapes, _LEARNT_AT_ONCE):
            if (
                len(shape) <= _LONGEST_SHAPE
                and b"%" not in shape
                and redact(text := shape.decode(errors="replace")) == text
            ):
                self._plain.add(shape)
        if len(self._plain) > _MOST_SHAPES:
            self._plain.clear()


def _last_drawn(line: bytes) -> bytes:
    """The last two states of a line that is drawn again and again: the last one may be empty, or half written."""
    return b"\r".join(line.split(b"\r")[-3:])


def _character_before(data: bytes, place: int) -> int:
    """The last place up to this one at which no character of UTF-8 is cut; of what is no UTF-8 this one."""
    for cut in range(place, place - 4, -1):
        if data[cut] & 0xC0 != 0x80:
            return cut
    return place
