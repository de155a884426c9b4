"""The process that keeps templates between runs: ``allranks warm`` starts it, and it ends by itself when it is idle."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.local.warm.address import keeper_socket, open_listener, peer_of
from allranks.local.warm.context import process_context
from allranks.local.warm.messages import MOST_BYTES, MOST_FILES, STARTED
from allranks.local.warm.templates import UNSAID, TemplateProcess, TemplateSpec

_NOT_YET = "its imports are under way"


@dataclass(frozen=True, slots=True)
class KeeperLimits:
    """When it ends by itself, and what its templates may take."""

    idle_seconds: float = 1800.0
    memory_bytes: int = 4 * 10**9


class TemplateKeeper:
    """Serves the engines of one user until it is idle or told to stop."""

    def __init__(self, listener: socket.socket, limits: KeeperLimits) -> None:
        self._listener = listener
        self._limits = limits
        self._context = process_context()
        self._templates: dict[str, tuple[TemplateProcess, float]] = {}  # by key, with when it was last asked for
        self._failed: dict[str, str] = {}
        self._refusal = ""
        self._forked = self._engines = 0  # from templates that have ended
        self._asked = time.monotonic()
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(listener, selectors.EVENT_READ)
        self._is_stopping = False

    def serve(self) -> None:
        """Until nobody has asked for so long, nor runs a rank."""
        while not self._is_stopping:
            for key, _ in self._waiting.select(min(5.0, self._limits.idle_seconds)):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._answer(key.fileobj)  # type: ignore[arg-type]  # the connections
            self._drop_spare()
            if time.monotonic() > self._asked + self._limits.idle_seconds and not self._is_busy:
                break

    def close(self) -> None:
        """End everything."""
        keeper_socket().unlink(missing_ok=True)
        for template, _ in self._templates.values():
            template.end()

    @property
    def _is_busy(self) -> bool:
        return any(template.has_ranks for template, _ in self._templates.values())

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if peer_of(connection)[1] != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        self._waiting.register(connection, selectors.EVENT_READ)

    def _answer(self, connection: socket.socket) -> None:
        files: list[int] = []
        try:
            message, files, _, _ = socket.recv_fds(connection, MOST_BYTES, MOST_FILES)
            if message:
                self._do(connection, json.loads(message), files)
                return
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            print(f"a request was not understood: {error!r}", file=sys.stderr)
        finally:
            for file in files:
                os.close(file)
        self._waiting.unregister(connection)
        connection.close()

    def _do(self, connection: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
        if asked["do"] == "fork":
            told = files[-1]
            reason = self._fork(asked, files)
            if reason:
                self._refusal = self._refusal if reason == _NOT_YET else reason
                with socket.socket(fileno=os.dup(told)) as report, contextlib.suppress(OSError):
                    report.send(STARTED.pack(0) + reason.encode())
            return
        if asked["do"] == "stop":
            self._is_stopping = True
        connection.send(json.dumps(self._state()).encode())

    def _fork(self, asked: dict[str, Any], files: list[int]) -> str:
        """Hand the request to the template that it needs; the reason where it has none yet."""
        self._asked = time.monotonic()
        if differ := [name for name, value in asked["context"].items() if self._context.get(name) != value]:
            return f"the keeper was started elsewhere: {', '.join(differ)}"
        spec = TemplateSpec.of_document(asked["spec"])
        if spec.key in self._failed:
            return self._failed[spec.key]
        key = self._key_for(spec)
        template = self._templates[key][0] if key in self._templates else TemplateProcess(spec)
        self._templates[key] = template, self._asked
        if not template.is_ready:
            return _NOT_YET
        self._hear(template)  # a few hundred of what it tells fit into the socket, and the rest would be lost
        try:
            template.ask(asked["request"], files)
        except OSError as error:
            return str(error)
        return ""

    def _key_for(self, spec: TemplateSpec) -> str:
        """The key of a template that may serve, of one that is under way and may turn out to, or of a new one."""
        if spec.key in self._templates:
            return spec.key
        alike = [(key, one) for key, (one, _) in self._templates.items() if one.spec.suits(spec, one.read)]
        return min(alike, key=lambda found: not found[1].is_ready)[0] if alike else spec.key

    def _drop_spare(self) -> None:
        """End templates that have failed or ended, and those that were not asked for longest where memory is short."""
        for key, (template, _) in list(self._templates.items()):
            if template.is_ready:
                continue
            if template.failure and template.failure != UNSAID:
                self._failed[key] = template.failure
            if template.failure or template.has_ended:
                self._end(key)
        by_age = sorted(self._templates, key=lambda key: self._templates[key][1])
        for key in by_age[:-1]:
            if sum(template.resident_bytes for template, _ in self._templates.values()) <= self._limits.memory_bytes:
                break
            if not self._templates[key][0].has_ranks:
                self._end(key)

    def _end(self, key: str) -> None:
        template, _ = self._templates.pop(key)
        self._hear(template)
        self._forked += template.forked
        self._engines += template.engines
        template.end()

    def _hear(self, template: TemplateProcess) -> None:
        template.hear()
        self._refusal, template.refusal = template.refusal or self._refusal, ""

    def _state(self) -> dict[str, Any]:
        for template, _ in self._templates.values():
            self._hear(template)
        templates = [
            {
                "interpreter": one.spec.interpreter,
                "modules": list(one.spec.modules),
                "threads": one.spec.variables.get("OMP_NUM_THREADS", ""),
                "ready": one.is_ready,
                "pid": one.pid,
                "bytes": one.resident_bytes,
                "forked": one.forked,
            }
            for one, _ in self._templates.values()
        ]
        return {
            "pid": os.getpid(),
            "templates": templates,
            "failed": sorted(set(self._failed.values())),
            "forked": self._forked + sum(one.forked for one, _ in self._templates.values()),
            "engines": self._engines + sum(one.engines for one, _ in self._templates.values()),
            "refusal": self._refusal,
            "idle_seconds": self._limits.idle_seconds,
            "memory_bytes": self._limits.memory_bytes,
        }


def main(arguments: list[str]) -> int:
    """Keep templates: arguments are IDLE_SECONDS, MEMORY_BYTES and READY, a pipe that is closed when it listens."""
    idle, memory, ready = arguments
    listener = open_listener()
    os.close(int(ready))
    os.chdir("/")
    Path("/proc/self/comm").write_text("allranks-warm")
    keeper = TemplateKeeper(listener, KeeperLimits(float(idle), int(memory)))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        keeper.serve()
    finally:
        keeper.close()
    return 0
