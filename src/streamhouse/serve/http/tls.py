"""The server's certificate, where it speaks TLS itself."""

from __future__ import annotations

import ssl
from typing import NoReturn

from streamhouse.errors import OptionError


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """For connections to a server with the certificate and the private key of two PEM files.

    The certificate's file has those after it that lead to its authority. TLS 1.2 is the oldest
    that is spoken. `OptionError` for files that are not such, do not belong together, or need a
    password.
    """
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            open(path, "rb").close()
        except OSError as error:
            raise OptionError(
                f"option '{option}': {path} cannot be read: {error.strerror}"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def asked() -> NoReturn:
        raise OptionError(
            f"option '--tls-key': {key} is encrypted; give a key without a password, such as "
            f"`openssl pkey -in {key}` writes"
        )

    try:
        context.load_cert_chain(cert, key, asked)
    except ssl.SSLError as error:
        raise _unfit(error, cert, key) from None
    return context


def _unfit(error: ssl.SSLError, cert: str, key: str) -> OptionError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return OptionError(f"option '--tls-key': {key} is not the key of the certificate in {cert}")
    return OptionError(
        f"options '--tls-cert' and '--tls-key': {cert} and {key} are not a certificate and its "
        "private key in PEM, which begin with -----BEGIN"
    )
