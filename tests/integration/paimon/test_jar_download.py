"""Jars are downloaded whatever Maven keeps on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamhouse.paimon.java.jars import download


def test_a_pom_without_its_jar_in_the_repository_of_maven_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "slf4j-api-1.7.36"
    kept = tmp_path / "home/.m2/repository/org/slf4j/slf4j-api/1.7.36"
    kept.mkdir(parents=True)
    (kept / f"{name}.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.slf4j</groupId>"
        "<artifactId>slf4j-api</artifactId><version>1.7.36</version></project>"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path / 'home'}")
    coordinates = "org.slf4j:slf4j-api:1.7.36"
    (jar,) = download(coordinates, tmp_path, "a jar", dependencies=True)
    assert jar.name.endswith(f"{name}.jar") and jar.stat().st_size > 10_000
