"""A private Kafka broker (KRaft) with its own data folder and ports, for demos and tests."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from streamhouse.demo.kafka.jars import kafka_jars
from streamhouse.demo.mariadb import free_port
from streamhouse.demo.private_server import STOP_SECONDS, PrivateServer, leftover
from streamhouse.errors import ConnectError
from streamhouse.paimon.java.installed_java import java_command

_START_SECONDS = 90.0
_JAVA = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN")
_SETTINGS = files(__package__) / "server.properties"


class KafkaBroker(PrivateServer):
    """A broker of its own under `data_dir`, on 127.0.0.1 only.

    `settings` override those of the broker; `listeners` are further ones: their names and protocols
    (`{"SECURE": "SASL_SSL"}`), whose settings `settings` has. As a context manager it starts and
    stops the broker. A broker that an earlier run left behind on the same folder is stopped first;
    the data stay. Raises `ConnectError` if it does not start.
    """

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        java_options: Sequence[str] = ("-XX:TieredStopAtLevel=1",),
    ) -> None:
        super().__init__(data_dir)
        self._settings = dict(settings or {})
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._java_options = tuple(java_options)
        self._ports: dict[str, int] = {}

    @property
    def servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        """The address of a listener; known once the broker has been started."""
        if listener not in self._ports:
            raise ConnectError("the private Kafka broker has no port before start()")
        return f"127.0.0.1:{self._ports[listener]}"

    def start(self) -> Self:
        """Start the broker (create its data the first time) and wait until it answers."""
        if self.pid is not None:
            return self
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stop_leftover()
        for name in (*self._listeners, "CONTROLLER"):
            self._ports.setdefault(name, free_port())
        self._write_settings()
        self._format()
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal stops the pipeline first.
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd=self.data_dir,
            )  # fmt: skip
        self._pid_file.write_text(str(self._process.pid))
        self._wait_until_up()
        return self

    def admin(self) -> AdminClient:
        """A client that creates and changes topics."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until it can be written."""
        new = NewTopic(name, partitions, 1, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new])[name].result(30)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        deadline = time.monotonic() + STOP_SECONDS
        while name in admin.list_topics(timeout=10).topics:
            if time.monotonic() > deadline:
                raise ConnectError(f"topic {name} was not deleted within {STOP_SECONDS:.0f} s")
            time.sleep(0.05)

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def _log(self) -> Path:
        return self.data_dir / "kafka.log"

    @property
    def _pid_file(self) -> Path:
        return self.data_dir / "kafka.pid"

    def _java(self, main: str, *arguments: str) -> list[str]:
        classes = ":".join(str(jar) for jar in kafka_jars())
        return [java_command(), *_JAVA, *self._java_options, "-cp", classes, main, *arguments]

    def _write_settings(self) -> None:
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()]
        advertised = [line for line in addresses if not line.startswith("CONTROLLER:")]
        protocols = {**self._listeners, "CONTROLLER": "PLAINTEXT"}
        settings = {
            "log.dirs": str(self.data_dir / "data"),
            "listeners": ",".join(addresses),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{self._ports['CONTROLLER']}",
            **self._settings,
        }
        self._properties.touch(mode=0o600)
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        # Of a key that occurs twice, the last line counts.
        self._properties.write_text(_SETTINGS.read_text() + lines)

    def _format(self) -> None:
        """Create the data folder, unless it exists."""
        marker = self.data_dir / "formatted"
        if marker.exists():
            return
        shutil.rmtree(self.data_dir / "data", ignore_errors=True)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(
            "kafka.tools.StorageTool", "format", "-t", f"S{cluster[1:]}",
            "-c", str(self._properties),
        )  # fmt: skip
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_START_SECONDS, check=False,
            start_new_session=True, cwd=self.data_dir,
        )  # fmt: skip
        if result.returncode != 0:
            lines = [line for line in (result.stderr + result.stdout).splitlines() if line.strip()]
            raise ConnectError(f"Kafka's data folder was not created: {lines[0] if lines else '?'}")
        marker.touch()

    def _stop_leftover(self) -> None:
        """Stop a broker that an earlier run left behind in this folder."""
        process = leftover(self._pid_file, str(self._properties))
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(timeout=STOP_SECONDS)

    def _wait_until_up(self) -> None:
        process = self._process
        assert process is not None
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=1).brokers:
                    return
        self.kill()
        raise ConnectError(f"the private Kafka broker did not start; see {self._log}")
