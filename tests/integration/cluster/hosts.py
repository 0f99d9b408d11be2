"""Other hosts, imitated on this machine: each with its own address, /tmp, home and processes.

A host is a network namespace on a bridge, with mount, process and host-name namespaces. It shares
the file system except /tmp (a tmpfs, in which one folder is shared, as NFS would), so programs and
Python packages are where they are on this machine, as with an image. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_S, until

from streamhouse.runtime.spark import jvm

SPARK_HOME = jvm.spark_home()
_MASTER_PORT = 7077
_JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *shlex.split(jvm.java_options(jvm.archive_path())),
)
"""As a driver has them: each of some ten JVMs starts in half the time."""
_ENTER = "mount --make-rprivate / && mount --bind {shared} /mnt && mount -t tmpfs tmpfs /tmp && \
mkdir -p {shared} /tmp/home && mount --bind /mnt {shared} && umount /mnt && hostname {name} && \
echo ready && exec sleep infinity"


def why_not() -> str | None:
    """Why hosts cannot be imitated here; None if they can."""
    if os.geteuid():
        return "it needs root"
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"it needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    probe = f"sh{os.getpid()}p"
    for command in (["ip", "netns", "add", probe], ["ip", "netns", "del", probe]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"it needs leave to make namespaces: {done.stderr.strip()}"
    command = ["unshare", "--mount", "--pid", "--fork", "--uts", "mount", "--make-rprivate", "/"]
    done = subprocess.run(command, capture_output=True, text=True)
    return f"it needs leave to mount: {done.stderr.strip()}" if done.returncode else None


class Host:
    """One imitated host; `close` ends all of its processes."""

    def __init__(self, network: Network, number: int, shared: Path) -> None:
        self.name = f"{network.name}n{number}"
        self.address = f"{network.prefix}.{number}"
        self.shared = shared
        self._network = network
        self._link = f"{network.name}v{number}"
        self._started: list[subprocess.Popen[bytes]] = []
        _run("ip", "netns", "add", self.name)
        inside = f"{self._link}i"
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", inside, "netns", self.name)
        _run("ip", "link", "set", self._link, "master", network.name, "up")
        for command in (
            ["addr", "add", f"{self.address}/24", "dev", inside],
            ["link", "set", inside, "up"],
            ["link", "set", "lo", "up"],
        ):
            _run("ip", "-n", self.name, *command)
        text = _ENTER.format(shared=shlex.quote(str(shared)), name=self.name)
        command = ["ip", "netns", "exec", self.name, "unshare", "--mount", "--pid", "--fork"]
        command += ["--uts", "--ipc", "--kill-child", "--mount-proc", "sh", "-c", text]
        self._init = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self._init.stdout is not None
        assert self._init.stdout.readline() == b"ready\n", f"host {self.name} did not start"
        self._pid = _last_child(self._init.pid)

    def start(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Any:
        """Start a command on the host; its output goes to the log, on this machine."""
        enter = ["nsenter", "-t", str(self._pid), "-m", "-p", "-u", "-i", "-n", "--"]
        given = {**os.environ, "HOME": "/tmp/home", "TMPDIR": "/tmp", **env}
        given = {key: value for key, value in given.items() if not key.startswith("XDG_")}
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*enter, *command], env=given, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        self._started.append(process)
        return process

    @property
    def temporary(self) -> Path:
        """The folder that is the host's /tmp."""
        return Path("/proc", str(self._pid), "root", "tmp")

    def cut(self) -> None:
        """Cut the host from the network."""
        _run("ip", "link", "set", self._link, "down")

    def join(self) -> None:
        """Connect the host again."""
        _run("ip", "link", "set", self._link, "up")

    def pids(self, text: str) -> list[int]:
        """The processes of the host whose command line has the text."""
        own = os.readlink(f"/proc/{self._pid}/ns/pid")
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and os.readlink(folder / "ns/pid") == own:
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if text in words:
                        found.append(int(folder.name))
        return found

    def kill(self, text: str) -> int:
        """SIGKILL for these processes; returns how many there were."""
        pids = self.pids(text)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            # The namespace's process 1; all others end with it.
            os.kill(self._pid, signal.SIGKILL)
        self._init.kill()
        self._init.communicate()
        for process in self._started:
            process.wait(DEADLINE_S)
        subprocess.run(["ip", "link", "del", self._link], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)


class Network:
    """A bridge between imitated hosts and this machine, which has the address `prefix`.1."""

    def __init__(self) -> None:
        number = os.getpid() % 200 + 20
        self.name = f"sh{os.getpid() % 10**6}"
        self.prefix = f"10.77.{number}"
        self.address = f"{self.prefix}.1"
        _run("ip", "link", "add", self.name, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address}/24", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")

    def close(self) -> None:
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)


class Cluster:
    """A Spark standalone cluster: a master on one host, workers on others; has to be closed."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        """`folder`: the one that all hosts share."""
        self.shared = folder
        self.logs = Path(tempfile.mkdtemp(prefix="cluster-logs-"))
        self._cores, self._memory = cores, memory
        self._resources = contextlib.ExitStack()
        try:
            self.network = Network()
            self._resources.callback(self.network.close)
            self.master_host = self._host(2)
            self.worker_hosts = [self._host(11 + n) for n in range(workers)]
            self.start_master()
            for number in range(workers):
                self.start_worker(number)
            self.wait_for_workers(workers)
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        return f"spark://{self.master_host.address}:{_MASTER_PORT}"

    @property
    def options(self) -> list[str]:
        """The options by which `streamhouse` uses the cluster."""
        settings = {
            "spark.driver.host": self.network.address,
            "spark.driver.bindAddress": self.network.address,
            "spark.executor.memory": "512m",
            # The class archive is one of this class path, which others may follow.
            "spark.driver.extraClassPath": jvm.classpath(),
            "spark.executor.extraClassPath": jvm.classpath(),
            "spark.executor.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        }
        words = [f"--conf={key}={value}" for key, value in settings.items()]
        return ["--master", self.master, *words]

    def start_master(self) -> None:
        """Start the master; returns once it answers."""
        host = self.master_host
        words = ["org.apache.spark.deploy.master.Master", "--host", host.address]
        words += ["--port", str(_MASTER_PORT), "--webui-port", "8080"]
        host.start(_java(words), self.logs / "master", self._environment(host))
        until(lambda: _answers(host.address, _MASTER_PORT), self._logs)

    def start_worker(self, number: int) -> None:
        host = self.worker_hosts[number]
        words = ["org.apache.spark.deploy.worker.Worker", "--host", host.address]
        words += ["--cores", str(self._cores), "--memory", self._memory]
        words += ["--work-dir", "/tmp/work", "--webui-port", "0", self.master]
        host.start(_java(words), self.logs / f"worker{number}", self._environment(host))

    def wait_for_workers(self, count: int) -> None:
        text = "Registering worker"
        until(lambda: self.log("master").count(text) >= count, self._logs)

    def log(self, name: str) -> str:
        return (self.logs / name).read_text(errors="replace")

    def close(self) -> None:
        self._resources.close()
        shutil.rmtree(self.logs, ignore_errors=True)

    def _host(self, number: int) -> Host:
        host = Host(self.network, number, self.shared)
        self._resources.callback(host.close)
        return host

    def _environment(self, host: Host) -> dict[str, str]:
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": host.address,
            "SPARK_SCALA_VERSION": "2.13",
        }

    def _logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in self.logs.iterdir())


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """A running cluster whose hosts share the folder."""
    made = Cluster(folder, workers, cores)
    try:
        yield made
    finally:
        made.close()


def _java(words: Sequence[str]) -> list[str]:
    opens = [
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
    ]
    opens += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    log = "-Dorg.apache.logging.log4j.level=INFO"
    return ["java", "-Xmx160m", *_JAVA_OPTIONS, log, *opens, "-cp", jvm.classpath(), *words]


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), DEADLINE_S).close()
    except OSError:
        return False
    return True


def _last_child(pid: int) -> int:
    """The innermost descendant of a process that has at most one child."""
    while True:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not text:
            return pid
        pid = int(text[0])


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
