"""Certificate authorities of a test, and what they sign; made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.waiting import DEADLINE_S

_NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split()


class Authority:
    """A certificate authority with files in `folder`: `<name>.pem` and `<name>.key`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        request = ["req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}"]
        openssl(*request, "-keyout", self._key, "-out", self.certificate)

    def sign(self, name: str, host: str | None = None, days: int = 2) -> tuple[Path, Path]:
        """A certificate and its key; `host`: the name or address that it is valid for."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n" if host else "keyUsage=digitalSignature\n")
        openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        issuer: list[str | Path] = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"]
        valid: list[str | Path] = ["-days", str(days), "-extfile", extensions]
        openssl("x509", "-req", "-in", request, *issuer, *valid, "-out", certificate)
        return certificate, key


def openssl(*arguments: str | Path) -> None:
    """Run openssl; raises `CalledProcessError` if it fails."""
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
