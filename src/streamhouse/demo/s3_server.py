"""A private S3-compatible server on 127.0.0.1, for demos and tests: moto, objects in memory.

`python -m streamhouse.demo.s3_server` serves until its standard input ends, and prints its port.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from streamhouse.errors import ConnectError

BUCKET = "streamhouse"
ACCESS_KEY, SECRET_KEY, REGION = "streamhouse", "streamhouse-demo", "us-east-1"

_STOP_SECONDS = 10.0


class S3Server:
    """The server as a process that ends with this one, even if this one is killed.

    It has one empty bucket, `BUCKET`. `environment` has what AWS's tools, and so Streamhouse, need
    to use it. Raises `ConnectError` if moto is not installed or does not start.
    """

    def __init__(self, port: int = 0) -> None:
        command = [sys.executable, "-m", "streamhouse.demo.s3_server", str(port)]
        self._process = subprocess.Popen(
            command,
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
                "pip install 'moto[server]'"
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
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> None:
    """Serve S3 until the standard input ends."""
    # Objects above this size go to a file; the default is 16 KB, and each is one more file.
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(4 << 20))
    import logging

    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", int(sys.argv[1]), app, threaded=True)
    import threading

    threading.Thread(target=server.serve_forever, daemon=True).start()
    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    ).create_bucket(Bucket=BUCKET)
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
