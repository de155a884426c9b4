"""From the bytes that a rank prints to lines that can be shown: whole, redrawn ones as they were last, without junk."""

from __future__ import annotations

from allranks.log_text import clean_text
from allranks.redaction import redact

_LONGEST = 2**16  # bytes of a line; a longer one is shown in parts
_QUIET_SECONDS = 1.0  # after which a line without an end is shown as far as it is
_REDRAWN_SECONDS = 10.0  # and one that is drawn again and again, as progress bars are


class LogLines:
    """Takes the bytes of one log and gives its lines; of what has no end yet at most 64 KiB are kept.

    ``styled`` keeps colours. Secrets are blotted out.
    """

    def __init__(self, *, styled: bool = False) -> None:
        self._styled = styled
        self._rest = b""
        self._grew = self._shown = 0.0
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
        lines = redact(clean_text(data.decode(errors="replace"), styled=self._styled)).split("\n")
        if self._is_begun and is_end and not lines[0]:
            lines = lines[1:]  # only the end of a line that has been shown
        self._is_begun = not is_end
        return lines


def _last_drawn(line: bytes) -> bytes:
    """The last two states of a line that is drawn again and again: the last one may be empty, or half written."""
    return b"\r".join(line.split(b"\r")[-3:])


def _character_before(data: bytes, place: int) -> int:
    """The last place up to this one at which no character of UTF-8 is cut; of what is no UTF-8 this one."""
    for cut in range(place, place - 4, -1):
        if data[cut] & 0xC0 != 0x80:
            return cut
    return place
