"""One request, one answer, and the way in which the service says no."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.azure.stand_in.state import State


@dataclass(frozen=True, slots=True)
class Request:
    """What the client sent; ``query`` has the last value of each name, header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body or b"{}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a JSON document, or bytes as they are."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class RefusedError(Exception):
    """The service's no, with the body that ARM gives to errors."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"error": {"code": code, "message": message}}, headers)


Handler = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def route(method: str, pattern: str) -> Callable[[Handler], Handler]:
    """Register a handler ``(request, state, **parts)`` for a path; ``{name}`` is one part, ``{name*}`` is the rest."""
    expression = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.+)", pattern)
    expression = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", expression)

    def register(handler: Handler) -> Handler:
        ROUTES.append((method, re.compile(expression), handler))
        return handler

    return register


def answer(request: Request, state: State) -> Answer:
    """Find the handler and let it work, one request at a time."""
    for method, pattern, handler in ROUTES:
        if method == request.method and (match := pattern.fullmatch(request.path)) is not None:
            try:
                with state.lock:
                    return handler(request, state, **match.groupdict())
            except RefusedError as refusal:
                return refusal.answer
    return RefusedError(404, "NoSuchCall", f"The stand-in knows no {request.method} {request.path}.").answer
