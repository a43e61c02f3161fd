"""Where the API server is, as a pod is told it, and what shows it who asks."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from router.adapters.discovery.trouble import Unreadable

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a pod's service account."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server. The files are read whenever they are needed: Kubernetes replaces them while the pod runs."""

    url: str
    """Scheme, host and port."""
    folder: Path = FOLDER
    """Has the files token, ca.crt and namespace."""

    def token(self) -> str:
        """Return the token as it is now. Raises Unreadable."""
        return self._text("token")

    def namespace(self) -> str:
        """Return the namespace that this pod is in. Raises Unreadable."""
        return self._text("namespace")

    def tls(self) -> ssl.SSLContext | bool:
        """Return whom to trust: the cluster's own authority, and nobody else. Raises Unreadable."""
        if not self.url.startswith("https:"):
            return False
        file = self.folder / "ca.crt"
        try:
            return ssl.create_default_context(cafile=str(file))
        except OSError as error:  # an SSLError is one, too
            raise Unreadable(f"{file}: {error.strerror or error}") from None

    def _text(self, name: str) -> str:
        file = self.folder / name
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unreadable(f"{file}: {getattr(error, 'strerror', None) or 'is no text'}") from None


def own_cluster(environment: Mapping[str, str] = os.environ) -> Cluster:
    """Return the cluster that this process runs in. Raises Unreadable outside of one."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Unreadable("KUBERNETES_SERVICE_HOST is not set: this source works in a pod only")
    return Cluster(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
