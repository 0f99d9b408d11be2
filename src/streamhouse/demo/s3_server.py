"""A private S3-compatible server on 127.0.0.1, for demos and tests: moto, objects in memory.

`python -m streamhouse.demo.s3_server PORT` serves until its standard input ends, and prints its
port.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from streamhouse.errors import ConnectError

Application = Callable[[Mapping[str, Any], Callable[..., Any]], Iterable[bytes]]


BUCKET = "streamhouse"
ACCESS_KEY, SECRET_KEY, REGION = "streamhouse", "streamhouse-demo", "us-east-1"

_THREADS = 16
_CONNECTIONS = 1000
_IDLE_S = 24 * 3600
"""Clients keep their connections open, and not all repeat a request on one that was closed."""


class S3Server:
    """The server as a process that ends with this one, even if this one is killed.

    It has one empty bucket, `BUCKET`. `environment` has what AWS's tools, and so Streamhouse, need
    to use it. `program` are Python's arguments before the port. Raises `ConnectError` if moto is
    not installed or does not start.
    """

    def __init__(self, program: Sequence[str] = ("-m", "streamhouse.demo.s3_server")) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *program, "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline().strip()
        if not line.isdigit():
            reason = (self._process.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            self.stop()
            raise ConnectError(
                f"the private S3 server did not start: {reason}; install it with "
                "pip install 'moto[server]' waitress"
            )
        self.port = int(line)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def url(self) -> str:
        """The end point."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables of AWS's tools for this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """The same as options of a catalog."""
        return {
            "s3.endpoint": endpoint or self.url,
            "s3.region": REGION,
            "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY,
        }

    def stop(self) -> None:
        """End the server; its objects are lost."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(port: int, wrapped: Callable[[Application], Application] = lambda app: app) -> None:
    """Serve S3, by what `wrapped` makes of moto, until the standard input ends."""
    # Objects above this size go to a file; the default is 16 KB, and each is one more file.
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(4 << 20))
    import boto3
    from moto.moto_server.werkzeug_app import create_backend_app
    from waitress import create_server

    _accept_empty_bodies()
    # Without moto's choice of a service, which lists its folder at each request.
    server = create_server(
        wrapped(_with_raw_uri(create_backend_app("s3"))),
        host="127.0.0.1",
        port=port,
        threads=_THREADS,
        connection_limit=_CONNECTIONS,
        channel_timeout=_IDLE_S,
    )
    logging.getLogger("waitress").setLevel(logging.CRITICAL)
    threading.Thread(target=server.run, daemon=True).start()
    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.effective_port}",
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    ).create_bucket(Bucket=BUCKET)
    print(server.effective_port, flush=True)
    sys.stdin.read()
    # At once: idle connections would keep the server's threads.
    os._exit(0)


def _accept_empty_bodies() -> None:
    """Keep waitress from waiting for ever for an empty body that the client has announced."""
    from waitress.channel import HTTPChannel
    from waitress.parser import HTTPRequestParser

    class Parser(HTTPRequestParser):  # type: ignore[misc]
        def parse_header(self, header_plus: bytes) -> None:
            super().parse_header(header_plus)
            if not self.content_length and not self.chunked:
                self.expect_continue = False

    HTTPChannel.parser_class = Parser


def _with_raw_uri(app: Application) -> Application:
    """The application with `RAW_URI`, from which moto takes keys; waitress names it otherwise."""

    def application(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        return app({**environ, "RAW_URI": environ["REQUEST_URI"]}, start)

    return application


if __name__ == "__main__":
    serve(int(sys.argv[1]))
