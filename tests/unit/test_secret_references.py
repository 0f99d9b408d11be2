"""Secrets that options refer to: where they come from, and what a server allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.errors import OptionError
from streamhouse.secret_references import ALLOWED, resolve_secrets


def test_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hidden")
    file = tmp_path / "secret"
    file.write_text("two\nlines\r\n")
    options = {
        "password": "${env:SHOP_PASSWORD}",
        "s3.secret-key": f"${{file:{file}}}",
        "ssl.key-password": "a${env:SHOP_PASSWORD}",
        "hostname": "x-${env:SHOP_PASSWORD}",
        "path": f"${{file:{file}}}",
    }
    assert resolve_secrets(options, "table t") == options | {
        "password": "hidden",
        "s3.secret-key": "two\nlines",
        "hostname": "x-hidden",
    }
    assert resolve_secrets(options, "t", keep=True) == options | {"hostname": "x-hidden"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("${env:NO_SUCH}", "'password' refers to the environment variable NO_SUCH, which is not"),
        ("${file:/nowhere/x}", "refers to /nowhere/x, which cannot be read: No such file"),
        ("${file:/dev/null}", "refers to /dev/null, which is empty"),
        ("${env: }", "empty reference"),
        ("${env:HOMME}", "which is not set; did you mean HOME?"),
    ],
)
def test_errors(value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/root")
    with pytest.raises(
        OptionError, match="^table t: option .*" + message.replace("$", r"\$").replace("?", r"\?")
    ):
        resolve_secrets({"password": value}, "table t")


def test_only_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("in/secret", "out"):
        (tmp_path / name).write_text("hidden")
    monkeypatch.setenv("SHOP_PASSWORD", "hidden")
    monkeypatch.setenv("HOME_SECRET", "hidden")
    allowed = ["${env:SHOP_PASSWORD}", f"${{file:{tmp_path}/in/secret}}"]
    refused = ["${env:HOME_SECRET}", f"${{file:{tmp_path}/in/../out}}", "${file:in/secret}"]
    monkeypatch.setenv(ALLOWED, f"env:SHOP_*, file:{tmp_path}/in/*")
    for value in allowed:
        assert resolve_secrets({"password": value}, "t") == {"password": "hidden"}
    for value in refused:
        with pytest.raises(OptionError, match=f"is not allowed here.*{ALLOWED}"):
            resolve_secrets({"password": value}, "t")
    monkeypatch.setenv(ALLOWED, "")
    for value in allowed:
        with pytest.raises(OptionError, match="is not allowed here"):
            resolve_secrets({"password": value}, "t")
