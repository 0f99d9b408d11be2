"""The TLS context of a server with a certificate of its own."""

from __future__ import annotations

import ssl
from typing import NoReturn

from streamhouse.errors import OptionError


def tls_context(cert: str, key: str) -> ssl.SSLContext:
    """The server's TLS context, from the PEM files of its certificate and its private key.

    The certificate's file may hold the intermediate certificates after it. The minimum is TLS 1.2.
    Raises `OptionError` for files that are not in PEM, do not match, or need a password.
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

    def reject_password() -> NoReturn:
        raise OptionError(
            f"option '--tls-key': {key} is encrypted; give a key without a password, such as "
            f"`openssl pkey -in {key}` writes"
        )

    try:
        context.load_cert_chain(cert, key, reject_password)
    except ssl.SSLError as error:
        raise _tls_error(error, cert, key) from None
    return context


def _tls_error(error: ssl.SSLError, cert: str, key: str) -> OptionError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return OptionError(f"option '--tls-key': {key} is not the key of the certificate in {cert}")
    return OptionError(
        f"options '--tls-cert' and '--tls-key': {cert} and {key} are not a certificate and its "
        "private key in PEM, which begin with -----BEGIN"
    )
