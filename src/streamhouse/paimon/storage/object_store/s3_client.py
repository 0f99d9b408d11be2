"""Clients of S3-compatible object stores, one per process and store, and their errors in one line.

Credentials come from the options, else from AWS's usual chain as boto3 has it: the environment,
`~/.aws`, the role of the machine or container.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamhouse.errors import OptionError, StoreError, StreamhouseError
from streamhouse.sql.options.catalog_options import REST_NAME
from streamhouse.sql.options.store_options import (
    ACCESS_KEY,
    CONDITIONAL,
    DEFAULT_REGION,
    ENDPOINT,
    PATH_STYLE,
    REGION,
    SECRET_KEY,
    SESSION_TOKEN,
    canonical_options,
    is_object_store,
)

CONNECT_S = 3
READ_S = 20
ATTEMPTS = 4
_CHECK_READ_S, _CHECK_ATTEMPTS = 3, 1
"""Of the check of a bucket: with `CONNECT_S` and the pause it ends within ten seconds."""
_STORE_KEYS = (ENDPOINT, REGION, ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, PATH_STYLE)
_OWN_CHAIN = ("iam-role", "container-role", "assume-role-with-web-identity")
"""Sources of credentials that each core reads, and renews, by itself."""
_REFUSED = ("403", "401", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")

_clients: dict[tuple[object, ...], Any] = {}
_checked: set[tuple[object, ...]] = set()


def client(options: Mapping[str, str], attempts: int = ATTEMPTS, read_s: int = READ_S) -> Any:
    """The boto3 client of a store, by canonical options; thread-safe, and shared.

    It repeats a failed request up to `attempts` times.
    """
    key = (attempts, *store_key(options))
    if key not in _clients:
        _clients[key] = _new_client(options, attempts, read_s)
    return _clients[key]


def store_key(options: Mapping[str, str]) -> tuple[object, ...]:
    """Identifies a store and the credentials for it, in this process."""
    environment = (os.environ.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "PROFILE"))
    return (os.getpid(), *environment, *(options.get(name) for name in _STORE_KEYS))


def _new_client(options: Mapping[str, str], attempts: int, read_s: int) -> Any:
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    style = "path" if options.get(PATH_STYLE) == "true" else "auto"
    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=read_s,
        retries={"max_attempts": attempts, "mode": "standard"},
        s3={"addressing_style": style},
        max_pool_connections=32,
        # It takes a tenth of the processor time of a request.
        parameter_validation=False,
        # Checksums of uploads are not understood by all compatible stores.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    made = _session().client(
        "s3",
        endpoint_url=options.get(ENDPOINT),
        region_name=options.get(REGION),
        aws_access_key_id=options.get(ACCESS_KEY),
        aws_secret_access_key=options.get(SECRET_KEY),
        aws_session_token=options.get(SESSION_TOKEN),
        config=config,
    )
    # The answer to `Expect: 100-continue` would be waited for before each body.
    made.meta.events.unregister("before-call.s3", add_expect_header)
    return made


def _session() -> Any:
    import boto3

    # The default session of boto3 is not safe to share between threads.
    return boto3.session.Session()


def core_options(options: Mapping[str, str]) -> dict[str, str]:
    """Catalog options for one of Paimon's cores: canonical, with credentials and the region.

    Credentials that expire are left out if the cores find, and renew, them by themselves.
    """
    result = canonical_options(options)
    result.pop(CONDITIONAL, None)
    # What lies beside the tables, such as views and the status of pipelines, needs a location.
    location = result["warehouse"]
    result["warehouse"] = result.pop(REST_NAME, location)
    if not any(key in result for key in (ENDPOINT, REGION)) and not is_object_store(location):
        return result
    if ACCESS_KEY not in result:
        result |= _chain_credentials()
    result[REGION] = _region(result)
    return result


def _region(options: Mapping[str, str]) -> str:
    return options.get(REGION) or _session().region_name or DEFAULT_REGION


def _chain_credentials() -> dict[str, str]:
    credentials = _session().get_credentials()
    if credentials is None or credentials.method in _OWN_CHAIN:
        return {}
    frozen = credentials.get_frozen_credentials()
    result = {ACCESS_KEY: frozen.access_key, SECRET_KEY: frozen.secret_key}
    return result | ({SESSION_TOKEN: frozen.token} if frozen.token else {})


def check_bucket(options: Mapping[str, str], location: str) -> None:
    """Raise `StreamhouseError` unless the bucket of a location answers; once per process.

    Fails within 10 seconds if nothing answers at the end point.
    """
    options = canonical_options(options)
    bucket, _ = bucket_and_key(location)
    if not bucket:
        raise OptionError(f"the location {location} names no bucket; write s3://bucket/path")
    key = (bucket, *store_key(options))
    if key in _checked:
        return
    try:
        with explained(location, options):
            client(options, _CHECK_ATTEMPTS, _CHECK_READ_S).head_bucket(Bucket=bucket)
    except StoreError as error:
        # A store that this process has never reached is not waited for.
        error.lasting = True
        raise
    _checked.add(key)


def bucket_and_key(location: str) -> tuple[str, str]:
    """The bucket and the key of `s3://bucket/key`, without a slash at its end."""
    bucket, _, key = location.partition("://")[2].rstrip("/").partition("/")
    return bucket, key


def plain_status(error: Exception) -> int:
    """404 for a missing object, 412 for a condition that is not met, 0 for other errors."""
    if _code(error) in ("404", "NoSuchKey", "NotFound", "NoSuchUpload"):
        return 404
    refused = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
    return 412 if _code(error) in refused else 0


def _code(error: Exception) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def _response(error: Exception) -> Mapping[str, Any]:
    """The store's answer to a failed request; empty if there was none."""
    return getattr(error, "response", None) or {}


def _region_of_answer(error: Exception) -> str:
    """The bucket's region, by the store; answers to HEAD requests have no other reason."""
    headers = _response(error).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(headers.get("x-amz-bucket-region", ""))


@contextmanager
def explained(location: str, options: Mapping[str, str]) -> Iterator[None]:
    """Raise errors of boto3 as `StreamhouseError` with one line that says what to do."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, RecursionError) as error:
        # To a redirect botocore reacts by a request for the bucket's region, redirected as well. If
        # that ends within the HTTP client, botocore raises an error of its own.
        cause = error.kwargs.get("error") if isinstance(error, BotoCoreError) else error
        if isinstance(cause, RecursionError):
            raise StreamhouseError(_redirected(options)) from None
        text = _explanation(error, location, options)
        kind = StreamhouseError if _is_final(error) else StoreError
        raise kind(text) from None


def _redirected(options: Mapping[str, str]) -> str:
    endpoint = options.get(ENDPOINT) or "Amazon S3"
    return (
        f"{endpoint} redirects all requests; check that the option '{ENDPOINT}' "
        "(AWS_ENDPOINT_URL_S3) has the store's own address, and its scheme, http or https"
    )


def _is_final(error: Exception) -> bool:
    """Whether a later attempt fails, too: a request that the store understood and refused."""
    status = int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 400 <= status < 500 or "Credentials" in type(error).__name__


def _explanation(error: Exception, location: str, options: Mapping[str, str]) -> str:
    bucket, _ = bucket_and_key(location)
    endpoint = options.get(ENDPOINT) or "Amazon S3"
    code, name = _code(error), type(error).__name__
    region, own = _region_of_answer(error), _region(options)
    if region not in ("", own) and code in ("301", "400", *_REFUSED):
        return (
            f"the bucket '{bucket}' is in the region {region}, and not in {own}; set the option "
            f"'{REGION}' (AWS_REGION), and the end point of that region if one is set"
        )
    if code in ("404", "NoSuchBucket"):
        return (
            f"the bucket '{bucket}' does not exist at {endpoint}; create it, or correct the "
            "warehouse's location"
        )
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return (
            f"there are no credentials for {location}; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the options s3.access-key and s3.secret-key"
        )
    if code in ("301", "302", "307", "308"):
        return _redirected(options)
    if code in ("400", *_REFUSED):
        return (
            f"{endpoint} refuses access to the bucket '{bucket}' ({code}); check the credentials, "
            "the region and the permissions of their user"
        )
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"):
        return (
            f"nothing answers at {endpoint} ({name}); check the option '{ENDPOINT}' "
            "(AWS_ENDPOINT_URL_S3) and the network"
        )
    text = " ".join(str(error).split())
    return f"{location}: {endpoint} failed: {text}"
