"""The command that starts Spark's JVM: directly, or by spark-submit where that is needed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from streamhouse.paimon.java.installed_java import java_command
from streamhouse.runtime.spark import jvm

LOCAL = {"spark.master": "local[2]", "spark.driver.memory": "2g"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A SPARK_HOME whose spark-submit writes its arguments and what it was started with."""
    for name in jvm.NEEDS_SUBMIT:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "spark"
    for name in ("jars/b.jar", "jars/a.jar", "jars/spark-mllib_2.13-4.3.0.jar", "bin/spark-submit"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    for program in (java, home / "bin" / "spark-submit"):
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" > {tmp_path}/said\n')
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr(jvm, "_OPTIONS", ("--add-opens=x",))
    return home


def said(home: Path, settings: dict[str, str]) -> list[str]:
    """The command that is run."""
    with pytest.raises(jvm.JavaExited):
        jvm.launch(settings, {"PATH": os.environ["PATH"]}, subprocess.DEVNULL)
    return (home.parent / "said").read_text().splitlines()


def test_a_local_session_starts_the_server_itself(home: Path) -> None:
    settings = LOCAL | {"spark.driver.extraJavaOptions": '-Da=b "-Dc=d e"'}
    command = said(home, settings)
    assert command[0].endswith("/java/bin/java")
    assert command[1:3] == ["-cp", f"{home}/jars/a.jar:{home}/jars/b.jar"]
    assert command[3:-1] == ["-Xmx2g", "--add-opens=x", "-Da=b", "-Dc=d e"]
    assert command[-1] == "org.apache.spark.api.python.PythonGatewayServer"


@pytest.mark.parametrize("name", jvm.NEEDS_SUBMIT)
def test_settings_of_the_environment_need_spark_submit(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "pyspark-shell")
    command = said(home, LOCAL)
    assert command[0] == f"{home}/bin/spark-submit"
    assert command[1:5] == ["--conf", "spark.master=local[2]", "--conf", "spark.driver.memory=2g"]
    assert command[5:] == ["pyspark-shell"]


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.master": "spark://host:7077"},
        LOCAL | {"spark.jars": "more.jar"},
        LOCAL | {"spark.jars.packages": "org:name:1"},
        LOCAL | {"spark.driver.extraClassPath": "more.jar"},
        LOCAL | {"spark.driver.defaultJavaOptions": "-Da=b"},
    ],
    ids=lambda settings: next(reversed(settings)),
)
def test_what_only_spark_submit_does(home: Path, settings: dict[str, str]) -> None:
    assert said(home, settings)[0] == f"{home}/bin/spark-submit"


@pytest.mark.parametrize(
    "name", ["spark-defaults.conf", "spark-env.sh", "log4j2.properties", "core-site.xml"]
)
def test_settings_in_files_need_spark_submit(home: Path, name: str) -> None:
    (home / "conf").mkdir()
    (home / "conf" / name).touch()
    assert said(home, LOCAL)[0] == f"{home}/bin/spark-submit"


def test_templates_of_settings_do_not_need_spark_submit(home: Path) -> None:
    (home / "conf").mkdir()
    (home / "conf" / "log4j2.properties.template").touch()
    assert said(home, LOCAL)[0].endswith("/java/bin/java")


def test_the_options_are_those_of_sparks_own_launcher() -> None:
    jars = jvm.spark_home() / "jars"
    launcher = [java_command(), "-cp", f"{jars}/*", "org.apache.spark.launcher.Main"]
    submit = "org.apache.spark.deploy.SparkSubmit"
    environment = {**os.environ, "SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": "2.13"}
    given = subprocess.run(
        [*launcher, submit, "pyspark-shell"], env=environment, capture_output=True, check=True
    )
    words = [word.decode() for word in given.stdout.split(b"\0") if word.strip()]
    options = words[words.index("-cp") + 2 : words.index(submit)]
    left_out = ("-Xmx", "--add-modules=jdk.incubator.vector")
    assert list(jvm._OPTIONS) == [word for word in options if not word.startswith(left_out)]


def test_a_start_that_is_cancelled_kills_the_jvm(home: Path) -> None:
    java = home.parent / "java" / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho $$ > {home.parent}/pid\nexec sleep 600\n")
    pid = home.parent / "pid"
    with pytest.raises(jvm.JavaExited):
        jvm.launch(
            LOCAL,
            {"PATH": os.environ["PATH"]},
            subprocess.DEVNULL,
            lambda: pid.exists() and bool(pid.read_text().strip()),
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
