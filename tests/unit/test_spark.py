"""Spark settings that depend on the environment."""

from __future__ import annotations

import pytest

from streamhouse.spark import loopback


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_a_local_session_listens_on_the_loopback_interface(master: str) -> None:
    assert loopback(master) == {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.authenticate": "true",
    }


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_keeps_its_own_settings(master: str) -> None:
    assert loopback(master) == {}
