"""``python -m allranks.local.tracking DESCRIPTOR FOLDER``: how the engine starts the server."""

from allranks.local.tracking.server import serve_tracking

if __name__ == "__main__":
    serve_tracking()
