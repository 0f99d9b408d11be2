"""Options of object stores by any tool's names become one name each."""

from __future__ import annotations

import pytest

from streamhouse.errors import OptionError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.files import files_of
from streamhouse.sql.options.catalog_options import check_catalog
from streamhouse.sql.options.store_options import canonical_options, named_options, s3_location

KEYS = {"s3.access-key": "a", "s3.secret-key": "b"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL_S3", "ENDPOINT_URL", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)


@pytest.mark.parametrize(
    ("access", "secret"),
    [
        ("s3.access-key", "s3.secret-key"),
        ("s3.access.key", "s3.secret.key"),
        ("s3a.access-key", "s3a.secret-key"),
        ("fs.s3a.access.key", "fs.s3a.secret.key"),
        ("fs.s3.accessKeyId", "fs.s3.accessKeySecret"),
        ("FS.S3A.ACCESS.KEY", "fs.s3a.secret.key"),
    ],
)
def test_all_spellings_are_one_option(access: str, secret: str) -> None:
    given = {"warehouse": "s3://b/w", access: "a", secret: "b"}
    assert named_options(given, "here") == {"warehouse": "s3://b/w", **KEYS}


@pytest.mark.parametrize(
    "location", ["gs://b/w", "hdfs://me:hidden@name:8020/w", "FILE://w", "://w"]
)
def test_a_warehouse_in_another_file_system_is_an_error(location: str) -> None:
    with pytest.raises(OptionError, match=r"not supported; give a directory .* s3://") as raised:
        named_options({"warehouse": location}, "here")
    assert "hidden" not in str(raised.value)
    with pytest.raises(OptionError, match="not supported"):
        Warehouse(location)
    in_rest = {"warehouse": location, "metastore": "rest"}
    assert named_options(in_rest, "here") == in_rest


def test_a_table_in_another_file_system_is_an_error() -> None:
    with pytest.raises(OptionError, match="a table is at gs://…, which is not") as raised:
        files_of("gs://me:hidden@b/w/shop.db/t", {"warehouse": "w", "metastore": "rest"})
    assert "hidden" not in str(raised.value)


def test_oss_is_used_by_its_s3_interface() -> None:
    given = {
        "warehouse": "oss://b/w",
        "fs.oss.accessKeyId": "a",
        "fs.oss.accessKeySecret": "b",
        "fs.oss.endpoint": "oss-cn-hangzhou.aliyuncs.com",
        "fs.oss.impl": "jindo",
    }
    assert canonical_options(given) == {
        "warehouse": "s3://b/w",
        **KEYS,
        "s3.endpoint": "https://oss-cn-hangzhou.aliyuncs.com",
        "s3.path.style.access": "false",
        "s3.region": "us-east-1",
    }


def test_options_of_oss_do_not_count_elsewhere() -> None:
    given = {"warehouse": "s3://b/w", "fs.oss.endpoint": "http://elsewhere"}
    assert canonical_options(given) == {"warehouse": "s3://b/w"}


def test_an_end_point_has_a_default_region_and_paths() -> None:
    given = {"warehouse": "s3a://b/w/", "s3.endpoint": "127.0.0.1:9000"}
    assert canonical_options(given) == {
        "warehouse": "s3://b/w",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.path.style.access": "true",
        "s3.region": "us-east-1",
    }


def test_the_environment_completes_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://localhost:1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    options = canonical_options({"warehouse": "s3://b/w"})
    assert options["s3.endpoint"] == "http://localhost:1"
    assert options["s3.region"] == "eu-west-1"
    given = {"warehouse": "s3://b/w", "s3.endpoint": "http://other:1", "s3.region": "us-west-2"}
    options = canonical_options(given)
    assert (options["s3.endpoint"], options["s3.region"]) == ("http://other:1", "us-west-2")


def test_a_local_warehouse_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert canonical_options({"warehouse": "/data/w"}) == {"warehouse": "/data/w"}


def test_canonical_options_stay_as_they_are() -> None:
    once = canonical_options({"warehouse": "oss://b/w", "fs.oss.endpoint": "http://h:1", **KEYS})
    assert canonical_options(once) == once


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("s3.acess-key", "did you mean 's3.access-key'?"),
        ("fs.s3a.secret.keys", "did you mean 's3.secret-key'?"),
        ("fs.oss.accesKeyId", "did you mean 'fs.oss.accessKeyId'?"),
        ("s3.end-point", "did you mean 's3.endpoint'?"),
    ],
)
def test_a_wrong_key_names_the_nearest(key: str, hint: str) -> None:
    for check in (
        lambda: named_options({key: "x"}, "--option"),
        lambda: check_catalog({"warehouse": "s3://b/w", key: "x"}, "catalog 'c'"),
    ):
        with pytest.raises(OptionError) as raised:
            check()
        assert hint in str(raised.value) and key in str(raised.value)


def test_half_of_the_credentials_is_an_error() -> None:
    with pytest.raises(OptionError, match="'s3.access-key' needs 's3.secret-key'"):
        canonical_options({"warehouse": "s3://b/w", "s3.access-key": "hush"})
    with pytest.raises(OptionError, match="'s3.secret-key' needs 's3.access-key'") as raised:
        canonical_options({"warehouse": "s3://b/w", "s3.secret-key": "hush"})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["ftp://h", "http://", "https:///x"])
def test_an_end_point_is_a_url(endpoint: str) -> None:
    with pytest.raises(OptionError, match="is not a URL"):
        canonical_options({"warehouse": "s3://b/w", "s3.endpoint": endpoint})


def test_locations() -> None:
    assert s3_location("s3n://b/w/") == "s3://b/w"
    assert s3_location("/data/w") == "/data/w"
    assert s3_location("hdfs://h/w") == "hdfs://h/w"
