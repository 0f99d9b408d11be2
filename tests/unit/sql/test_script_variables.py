"""Variables of scripts: where they are replaced, and what an unknown one reports."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamhouse.cli.main import build
from streamhouse.errors import OptionError, SqlError
from streamhouse.secret_references import ALLOWED
from streamhouse.sql.script_variables import with_references, with_variables

VALUES = {"db": "shop", "name": "O'Brien", "tick": "a`b", "n": "7"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("USE ${db};", "USE shop;"),
        ("SELECT '${name}', ${n} AS `${tick}`", "SELECT 'O''Brien', 7 AS `a``b`"),
        ("SELECT * FROM t /*+ OPTIONS('a' = '${name}') */", None),
        ("-- ${none}\nSELECT 1 /* ${none} */", "-- ${none}\nSELECT 1 /* ${none} */"),
        ("SELECT '-- ${n}', '/* ${n} */'", "SELECT '-- 7', '/* 7 */'"),
        ("SELECT '$${n}', '$1', '${1}', '${env:N}'", "SELECT '${n}', '$1', '${1}', '${env:N}'"),
    ],
)
def test_variables_are_replaced_outside_of_comments(text: str, result: str | None) -> None:
    wanted = text.replace("${name}", "O''Brien") if result is None else result
    assert with_variables(text, VALUES) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_generated_texts(seed: int) -> None:
    chance = random.Random(seed)
    text, wanted, at = "", "", 0
    for _ in range(30):
        name = chance.choice(list(VALUES))
        around = chance.choice(["'{}'", "`{}`", "-- {}\n", "/* {} */", " {} ", "/*+ O('{}') */"])
        value = VALUES[name]
        if "'" in around:
            value = value.replace("'", "''")
        elif "`" in around:
            value = value.replace("`", "``")
        elif around[0] in "-/":
            value = f"${{{name}}}"
        text += around.format(f"${{{name}}}")
        wanted += around.format(value)
    assert with_variables(text, VALUES) == wanted
    at = text.rindex(f"${{{name}}}")
    if wanted.rstrip(" '`)*/\n").endswith(f"${{{name}}}"):
        return
    with pytest.raises(SqlError) as caught:
        with_variables(text[:at] + "${unknown}" + text[at + len(name) + 3 :], VALUES)
    before = text[:at]
    place = (before.count("\n") + 1, at - before.rfind("\n"))
    assert (caught.value.line, caught.value.column) == place


def test_an_unknown_variable_names_the_nearest() -> None:
    with pytest.raises(SqlError, match=r"line 2, column 7: .* 'nmae'; did you mean 'name'\?"):
        with_variables("USE d;\nINTO '${nmae}'", VALUES)
    with pytest.raises(SqlError, match="set it by --set day=…"):
        with_variables("SELECT ${day}", {})


def test_environment_variables_in_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_ROWS", "12")
    monkeypatch.setenv("SHOP_PASSWORD", "it's hidden")
    text = (
        "CREATE TABLE t (i INT) WITH ('connector' = 'datagen', 'rows' = '${env:SHOP_ROWS}',"
        " 'path' = 'a/${env:SHOP_PASSWORD}/b', 'password' = '${env:SHOP_PASSWORD}');"
        "SET 'k' = '${env:SHOP_ROWS}'; -- 'k' = '${env:NONE}'\n"
        "SELECT '${env:SHOP_ROWS}' FROM t /*+ OPTIONS('a' = '${env:SHOP_ROWS}') */"
    )
    wanted = text.replace("'${env:SHOP_ROWS}',", "'12',").replace("= '${env:SHOP_ROWS}'", "= '12'")
    wanted = wanted.replace("a/${env:SHOP_PASSWORD}/b", "a/it''s hidden/b")
    assert with_references(text) == wanted
    for key in ("path", "password"):
        with pytest.raises(OptionError, match=r"line 2, column 1\d: .*SHOP_ROS, .*; did"):
            with_references(f"SET 'a' = 'b';\n{key!r:>7} = '${{env:SHOP_ROS}}'")
    monkeypatch.setenv(ALLOWED, "env:OTHER")
    with pytest.raises(OptionError, match="is not allowed here"):
        with_references("SET 'a' = '${env:SHOP_ROWS}'")


def test_commands_take_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_BUCKETS", "3")
    script, warehouse = tmp_path / "s.sql", tmp_path / "w"
    script.write_text(
        "CREATE TABLE ${t} (i INT, PRIMARY KEY (i) NOT ENFORCED)"
        " WITH ('bucket' = '${env:SHOP_BUCKETS}');"
        "INSERT INTO ${t} VALUES (${n}); SHOW CREATE TABLE ${t};"
    )
    words = [str(script), "--warehouse", str(warehouse), "--set", "t=made", "--set", "n=5"]
    done = CliRunner().invoke(build(["run"]), ["run", *words, "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout.splitlines()[-1])["row"]["create table"]
    assert "`made`" in shown and "'bucket' = '3'" in shown
    done = CliRunner().invoke(build(["graph"]), ["graph", *words[:-2], "--set", "m=1"])
    assert "there is no variable 'n'; known: m, t" in done.stderr
    words = ["execute", "DELETE FROM ${t} WHERE i = ${n}", *words[1:]]
    done = CliRunner().invoke(build(words), words)
    assert (done.exit_code, done.stdout) == (0, "1 deleted\n")
