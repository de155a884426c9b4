"""The picture of a plan: an SVG with the efficiency, and with the part of each step that goes into what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from allranks.planning.forecast import NodeForecast
from allranks.planning.step import StepTime

WIDTH, HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 20, 48, 44
_PARTS: tuple[tuple[str, str, Callable[[StepTime], float]], ...] = (
    ("computing", "#4477aa", lambda step: step.compute),
    ("slower beside the network", "#66ccee", lambda step: step.contention),
    ("waiting for the network", "#ee6677", lambda step: step.exposed),
    ("waiting for the slowest rank", "#ccbb44", lambda step: step.straggling),
    ("stages without work", "#bbbbbb", lambda step: step.bubble),
)


def plan_picture(title: str, forecasts: Sequence[NodeForecast]) -> str:
    """An SVG of all numbers of nodes that are possible, in bars of the shares of their steps."""
    shown = [one for one in forecasts if one.is_possible]
    lines = "\n".join(_elements(title, shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{lines}\n</svg>\n'
    )


def _elements(title: str, shown: Sequence[NodeForecast]) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>'
    used = [(name, colour) for name, colour, seconds in _PARTS if any(seconds(one.step) for one in shown)]
    for place, (name, colour) in enumerate(used):
        x = _LEFT + 130 * place
        yield f'<rect x="{x}" y="26" width="10" height="10" fill="{colour}"/><text x="{x + 14}" y="35">{name}</text>'
    for share in (0, 25, 50, 75, 100):
        y = _height(share / 100)
        yield f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>'
    room = (WIDTH - _LEFT - _RIGHT) / max(1, len(shown))
    for place, one in enumerate(shown):
        yield from _bar(one, _LEFT + room * (place + 0.5), min(48.0, 0.7 * room))
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">nodes</text>'


def _bar(one: NodeForecast, middle: float, width: float) -> Iterator[str]:
    below = 0.0
    for _, colour, seconds in _PARTS:
        above = below + seconds(one.step) / one.step.total
        y, height = _height(above), _height(below) - _height(above)
        place = f'x="{middle - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        yield f'<rect {place} fill="{colour}"/>'
        below = above
    yield f'<text x="{middle:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{one.nodes}</text>'


def _height(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - _TOP)
