"""The options of TLS: one mode for all connections, from three kinds of names."""

from __future__ import annotations

import pytest

from streamhouse.errors import OptionError
from streamhouse.mysql.tls import Tls, parse_tls

_JDBC = "jdbc.properties."
_DEBEZIUM = "debezium.database.ssl."


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "preferred"),
        ({"ssl.mode": "VERIFY_IDENTITY"}, "verify-identity"),
        ({"ssl.ca": "ca.pem"}, "verify-ca"),
        ({"ssl.cert": "c.pem"}, "required"),
        ({f"{_JDBC}useSSL": "true"}, "required"),
        ({f"{_JDBC}useSSL": "false", f"{_JDBC}requireSSL": "true"}, "disabled"),
        ({f"{_JDBC}useSSL": "true", f"{_JDBC}verifyServerCertificate": "true"}, "verify-ca"),
        ({f"{_JDBC}useSSL": "false", f"{_DEBEZIUM}mode": "verify_ca"}, "verify-ca"),
        ({f"{_JDBC}sslMode": "VERIFY_CA", f"{_DEBEZIUM}mode": "verify_ca"}, "verify-ca"),
    ],
)
def test_the_mode(options: dict[str, str], mode: str) -> None:
    assert parse_tls(options).mode == mode


def test_files_of_each_kind() -> None:
    ours = {"ssl.ca": "/c/a b.pem", "ssl.cert": "/c/me.pem", "ssl.key-password": "hidden"}
    jdbc = {
        f"{_JDBC}trustCertificateKeyStoreUrl": "file:///c/a%20b.pem",
        f"{_JDBC}clientCertificateKeyStoreUrl": "file:/c/me.pem",
        f"{_JDBC}clientCertificateKeyStorePassword": "hidden",
    }
    debezium = {
        f"{_DEBEZIUM}truststore": "/c/a b.pem",
        f"{_DEBEZIUM}keystore": "/c/me.pem",
        f"{_DEBEZIUM}keystore.password": "hidden",
    }
    expected = Tls("verify-ca", "/c/a b.pem", "/c/me.pem", None, "hidden")
    assert parse_tls(ours) == parse_tls(jdbc) == parse_tls(debezium) == expected
    assert "hidden" not in repr(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssl.mode": "trust"}, "'trust' is not one of disabled, preferred"),
        (
            {f"{_JDBC}sslMode": "DISABLED", f"{_DEBEZIUM}mode": "required"},
            "'disabled' and 'debezium.database.ssl.mode' = 'required' contradict",
        ),
        ({"ssl.ca": "a", f"{_DEBEZIUM}truststore": "b"}, "'debezium.*truststore' differ"),
        ({"ssl.ca": "a", "ssl.mode": "required"}, "needs verification, but the mode is 'required'"),
        ({"ssl.cert": "a", "ssl.mode": "disabled"}, "TLS is disabled"),
        ({"ssl.key": "a"}, "needs 'ssl.cert'"),
    ],
)
def test_contradictions(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_tls(options)
