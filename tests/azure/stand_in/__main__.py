"""``python -m tests.azure.stand_in FOLDER``: serve until standard input is closed; FOLDER gets ``environment.json``."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from tests.azure.stand_in import certificates
from tests.azure.stand_in.identity import IDENTITY_HEADER
from tests.azure.stand_in.server import Server
from tests.azure.stand_in.state import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE


def main() -> None:
    """Write the variables that lead a client here, then serve; who started the server ends it by going away."""
    folder = Path(sys.argv[1])
    authority, certificate = certificates.write(folder)
    server = Server(certificate)
    environment = {
        "ARM_CLOUD_METADATA_URL": f"{server.state.base}/metadata",
        "REQUESTS_CA_BUNDLE": str(authority),
        "IDENTITY_ENDPOINT": f"{server.state.base}/identity/token",
        "IDENTITY_HEADER": IDENTITY_HEADER,
        "REGISTRY_DISCOVERY_ENDPOINT_URL": f"{server.state.base}/",
        "AZUREML_ARM_SUBSCRIPTION": SUBSCRIPTION,
        "AZUREML_ARM_RESOURCEGROUP": RESOURCE_GROUP,
        "AZUREML_ARM_WORKSPACE_NAME": WORKSPACE,
    }
    partial = folder / "environment.json.partial"
    partial.write_text(json.dumps(environment))
    partial.rename(folder / "environment.json")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
