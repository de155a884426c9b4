"""The storage account: blobs by path, read and written with addresses that carry a signature."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from urllib.parse import quote
from xml.sax.saxutils import escape

from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.identity import STORAGE
from tests.azure.stand_in.state import Blob, State

SIGNATURE = "sv=2026-01-01&sr=c&sp=rcwl&sig=c3RhbmQtaW4%3D"


def address(state: State, path: str) -> str:
    """The address of a container, or of a blob in one."""
    return f"{state.base}/{STORAGE}/{quote(path)}"


def signed(state: State, path: str) -> str:
    """The same, with a signature that lets anybody read and write."""
    return f"{address(state, path)}?{SIGNATURE}"


@route("PUT", f"/{STORAGE}/{{path*}}")
def put(request: Request, state: State, path: str) -> Answer:
    if "sig" not in request.query:
        raise RefusedError(403, "AuthenticationFailed", "The address has no signature.")
    if request.query.get("comp") == "metadata":
        prefix = "x-ms-meta-"
        metadata = {name.removeprefix(prefix): value for name, value in request.headers.items() if prefix in name}
        _blob(state, path).metadata = metadata
        return _done(200, b"")
    if request.headers.get("if-none-match") == "*" and path in state.blobs:
        raise RefusedError(
            409, "BlobAlreadyExists", "The specified blob already exists.", **_error("BlobAlreadyExists")
        )
    state.blobs[path] = Blob(request.body)
    return _done(201, request.body)


@route("HEAD", f"/{STORAGE}/{{path*}}")
def head(_request: Request, state: State, path: str) -> Answer:
    blob = _blob(state, path)
    return Answer(200, None, _headers(blob) | {"Content-Length": str(len(blob.content))})


@route("GET", f"/{STORAGE}/{{path*}}")
def get(request: Request, state: State, path: str) -> Answer:
    if request.query.get("comp") == "list":
        return _list(request, state, path)
    blob = _blob(state, path)
    headers = _headers(blob)
    span = request.headers.get("x-ms-range") or request.headers.get("range")
    if span is None or not blob.content:
        return Answer(200, blob.content, headers)
    first, _, last = span.removeprefix("bytes=").partition("-")
    end = min(int(last or len(blob.content) - 1), len(blob.content) - 1)
    part = blob.content[int(first) : end + 1]
    return Answer(206, part, headers | {"Content-Range": f"bytes {first}-{end}/{len(blob.content)}"})


def _list(request: Request, state: State, container: str) -> Answer:
    prefix = request.query.get("prefix", "")
    names = [path.removeprefix(f"{container}/") for path in state.blobs if path.startswith(f"{container}/{prefix}")]
    items = "".join(
        f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>"
        f"{len(state.blobs[f'{container}/{name}'].content)}</Content-Length><BlobType>BlockBlob</BlobType>"
        f"<Last-Modified>{formatdate(usegmt=True)}</Last-Modified></Properties></Blob>"
        for name in sorted(names)
    )
    page = f'<?xml version="1.0"?><EnumerationResults><Blobs>{items}</Blobs><NextMarker/></EnumerationResults>'
    return Answer(200, page.encode(), {"Content-Type": "application/xml"})


def _blob(state: State, path: str) -> Blob:
    if path not in state.blobs:
        raise RefusedError(404, "BlobNotFound", "The specified blob does not exist.", **_error("BlobNotFound"))
    return state.blobs[path]


def _error(code: str) -> dict[str, str]:
    return {"x-ms-error-code": code}


def _headers(blob: Blob) -> dict[str, str]:
    own = {f"x-ms-meta-{name}": value for name, value in blob.metadata.items()}
    kind = {"x-ms-blob-type": "BlockBlob", "ETag": '"0x1"', "Last-Modified": formatdate(usegmt=True)}
    return own | kind | {"Content-Type": "application/octet-stream"}


def _done(status: int, content: bytes) -> Answer:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    kind = {"ETag": f'"{digest}"', "Last-Modified": formatdate(usegmt=True), "x-ms-request-server-encrypted": "true"}
    return Answer(status, None, kind)
