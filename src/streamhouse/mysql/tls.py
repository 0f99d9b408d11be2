"""TLS of connections to a server: options under three kinds of names, certificates, errors."""

import functools
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, OptionValues, table_of

_JDBC = "jdbc.properties."

OPTIONS = DeclaredOptions.of(__package__, "tls.toml").options
PLAIN = tuple(option for option in OPTIONS if option.key.startswith("ssl."))
"""The options under Streamhouse's own names."""
MAPPED = tuple(option for option in OPTIONS if option not in PLAIN)
"""The options with the same meaning of MySQL's JDBC driver and of Debezium."""
_SAME: Mapping[str, Sequence[str]] = table_of(__package__, "tls.toml")["same"]
"""The options of other programs with the meaning of Streamhouse's own, by its names."""

_CERT_NEEDS = "a PEM file, its key in 'ssl.key', and 'ssl.key-password' if the key is encrypted"
_BEGIN = b"-----BEGIN "
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_HOST_MISMATCH = (62, 63, 64)
_EXPIRED = (9, 10)
_ALERT = re.compile(r"ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_\w+|\w*CERTIFICATE)")


@dataclass(frozen=True)
class Tls:
    """How connections are encrypted and verified; files in PEM. `repr` hides the password.

    `named`: for each file, the option that names it, for messages.
    """

    mode: str = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    named: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate is checked."""
        return self.mode.startswith("verify")

    @property
    def required(self) -> bool:
        """Whether a connection without TLS is refused."""
        return self.mode not in ("disabled", "preferred")

    def context(self) -> ssl.SSLContext:
        """The settings of one connection; raises `OptionError` for a file that cannot be used."""
        if self.ca is None and self.cert is None:
            return _without_files(self.verifies, self.mode == "verify-identity")
        # Files are read for each connection, since certificates are renewed while queries run.
        context = _new_context(self.verifies, self.mode == "verify-identity")
        if self.ca is not None and self.verifies:
            self._load("ssl.ca", self.ca, lambda: context.load_verify_locations(self.ca))
        elif self.verifies:
            context.load_default_certs()
        if self.cert is not None:
            cert, key, password = self.cert, self.key, self.key_password or ""
            if key is not None:
                self._check_file("ssl.key", key)
            # With an empty password OpenSSL fails, without one it would ask on the terminal.
            self._load("ssl.cert", cert, lambda: context.load_cert_chain(cert, key, password))
        return context

    def _load(self, key: str, path: str, load: Callable[[], None]) -> None:
        self._check_file(key, path)
        try:
            load()
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            needs = "a PEM file" if key == "ssl.ca" else _CERT_NEEDS
            raise OptionError(
                f"option '{self._option(key)}': {path} cannot be used ({reason}); set {needs}"
            ) from None

    def _check_file(self, key: str, path: str) -> None:
        option = self._option(key)
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            reason = error.strerror or error
            raise OptionError(f"option '{option}': {path} cannot be read: {reason}") from None
        if _BEGIN not in content:
            raise OptionError(f"option '{option}': {_conversion(path, content, key)}")

    def _option(self, key: str) -> str:
        return dict(self.named).get(key, key)


def parse_tls(options: Mapping[str, str]) -> Tls:
    """The TLS settings of these options, of any of the three kinds; reads no files."""
    named: dict[str, str] = {}
    mode = _mode(options)
    ca, cert = _one(options, "ssl.ca", named), _one(options, "ssl.cert", named)
    key = options.get("ssl.key")
    if key is not None and cert is None:
        raise OptionError("option 'ssl.key' needs 'ssl.cert'")
    if mode is None:
        mode = "verify-ca" if ca else "required" if cert else "preferred"
    if ca is not None and not mode.startswith("verify"):
        raise OptionError(
            f"option '{named['ssl.ca']}' needs verification, but the mode is '{mode}'; set "
            "'ssl.mode' to 'verify-identity' or 'verify-ca', or leave out the certificates"
        )
    if cert is not None and mode == "disabled":
        raise OptionError(f"option '{named['ssl.cert']}': TLS is disabled; set 'ssl.mode'")
    password = _one(options, "ssl.key-password", named) if cert is not None else None
    return Tls(
        mode,
        None if ca is None else _path(ca),
        None if cert is None else _path(cert),
        None if key is None else _path(key),
        password,
        tuple(named.items()),
    )


def _mode(options: Mapping[str, str]) -> str | None:
    values = OptionValues(OPTIONS, options)
    modes: dict[str, str] = {
        key: values[key] for key in ("ssl.mode", *_SAME["ssl.mode"]) if key in values
    }
    if len(set(modes.values())) > 1:
        (one, first), (two, second) = list(modes.items())[:2]
        raise OptionError(
            f"options '{one}' = '{first}' and '{two}' = '{second}' contradict each other; "
            "one mode holds for all connections"
        )
    for mode in modes.values():
        return mode
    used, wanted = values[f"{_JDBC}useSSL"], values[f"{_JDBC}requireSSL"]
    if used is False:
        return "disabled"
    if values[f"{_JDBC}verifyServerCertificate"]:
        return "verify-ca"
    return "required" if used or wanted else None


def _one(options: Mapping[str, str], own: str, named: dict[str, str]) -> str | None:
    """The value of an option or of those with the same meaning, which must not differ."""
    given = [key for key in (own, *_SAME[own]) if options.get(key)]
    for key in given[1:]:
        if options[key] != options[given[0]]:
            raise OptionError(f"options '{given[0]}' and '{key}' differ; leave out one of them")
    if not given:
        return None
    named[own] = given[0]
    return options[given[0]]


def _path(value: str) -> str:
    """The path of a file, which may be a URL as for JDBC."""
    return unquote(re.sub(r"^file:(?://)?", "", value)) if value.startswith("file:") else value


def _conversion(path: str, content: bytes, key: str) -> str:
    stores = {"ssl.ca": ("-nokeys", "ca.pem"), "ssl.cert": ("-nodes", "client.pem")}
    flag, output = stores.get(key, stores["ssl.cert"])
    convert = f"openssl pkcs12 -in {path} {flag} -out {output}"
    if content.startswith(_JKS):
        store = f"{path}.p12"
        convert = (
            f"keytool -importkeystore -srckeystore {path} -destkeystore {store} "
            f"-deststoretype PKCS12, then openssl pkcs12 -in {store} {flag} -out {output}"
        )
    return f"{path} is not a PEM file; convert it: {convert}"


@functools.cache
def _without_files(verifies: bool, checks_host: bool) -> ssl.SSLContext:
    # Cached, since loading the system's CA certificates takes 40 ms.
    context = _new_context(verifies, checks_host)
    if verifies:
        context.load_default_certs()
    return context


def _new_context(verifies: bool, checks_host: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = checks_host
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    return context


def is_interrupted(error: ssl.SSLError) -> bool:
    """Whether the connection ended during the handshake, as with a server that restarts."""
    return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def handshake_reason(error: ssl.SSLError, hostname: str) -> str:
    """Why a TLS handshake failed, and which option to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCH:
            return (
                f"the server's certificate is not valid for the host name '{hostname}'; connect "
                "by a name in the certificate, or set 'ssl.mode' = 'verify-ca'"
            )
        if error.verify_code in _EXPIRED:
            return f"the server's certificate is out of date ({error.verify_message}); renew it"
        return (
            f"the server's certificate is not trusted ({error.verify_message}); set 'ssl.ca' to "
            "the certificate of the CA that signed it"
        )
    alert = _ALERT.search(str(error))
    if alert is not None:
        return (
            f"the server refuses the client certificate ({alert[1].replace('_', ' ').lower()}); "
            "set 'ssl.cert' and 'ssl.key' to one that a CA of the server's 'ssl_ca' has signed"
        )
    return f"the TLS handshake failed: {error.reason or error}"
