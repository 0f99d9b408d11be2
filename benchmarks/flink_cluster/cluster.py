"""A private Flink: fetched from PyPI and Maven Central, one JobManager and one TaskManager."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

VERSION = "1.20.3"
HERE = Path(__file__).parent
REST = "http://localhost:8081"
JOB_S = 300.0
_MAIN = "org.apache.flink.runtime"
"""The package of the main classes of its processes."""
# On two cores the JVM's common pool has parallelism 1, for which CompletableFuture starts a thread
# a task: each asynchronous lookup would pay for one.
CONFIG = """
env.java.opts.all: {opens}
env.java.opts.taskmanager: -Djava.util.concurrent.ForkJoinPool.common.parallelism=2
jobmanager.rpc.address: localhost
jobmanager.rpc.port: 6123
jobmanager.bind-host: localhost
jobmanager.memory.process.size: 1600m
taskmanager.host: localhost
taskmanager.bind-host: localhost
taskmanager.numberOfTaskSlots: 4
taskmanager.memory.task.heap.size: 4096m
taskmanager.memory.managed.size: 512m
taskmanager.memory.network.min: 256m
taskmanager.memory.network.max: 256m
rest.address: localhost
rest.bind-address: localhost
rest.port: 8081
io.tmp.dirs: {folder}/tmp
execution.checkpointing.dir: file://{folder}/checkpoints
state.backend.type: hashmap
"""


class FlinkCluster:
    """Runs while the `with` lasts; `folder` keeps what was fetched (about 1 GB), logs and jobs.

    Needs `java`, `mvn`, and the ports 6123 and 8081.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._home = self._folder / "flink"
        self._environment = {
            **os.environ,
            "FLINK_HOME": str(self._home),
            "FLINK_CONF_DIR": str(self._home / "conf"),
            "FLINK_LOG_DIR": str(self._folder / "log"),
            "FLINK_PID_DIR": str(self._folder / "pid"),
        }

    def __enter__(self) -> FlinkCluster:
        self._fetch()
        self._configure()
        for name in ("jobmanager", "taskmanager"):
            self._script(name, "start")
        deadline = time.monotonic() + JOB_S
        while not self._ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"Flink did not start; its logs are in {self._folder / 'log'}")
            time.sleep(0.5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in ("taskmanager", "jobmanager"):
            self._script(name, "stop")

    def submit(self, script: str) -> str:
        """Run a script with Flink's SQL client; the id of its last job."""
        path = self._folder / "tmp" / f"{time.time_ns()}.sql"
        path.write_text(script)
        client = str(self._home / "bin/sql-client.sh")
        done = subprocess.run(
            [client, "-f", str(path)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=self._environment,
            check=False,
        )
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stdout + done.stderr)
        jobs = re.findall(r"Job ID: ([0-9a-f]{32})", text)
        if "[ERROR]" in text or not jobs:
            raise SystemExit(text)
        return str(jobs[-1])

    def job(self, job: str) -> Mapping[str, Any]:
        """What the REST API says of a job."""
        found: Mapping[str, Any] = _rest(f"/jobs/{job}")
        return found

    def cancel(self, job: str) -> None:
        """Cancel a job, and wait until it has ended."""
        _rest(f"/jobs/{job}?mode=cancel", "PATCH")
        while self.job(job)["state"] not in ("CANCELED", "FINISHED", "FAILED"):
            time.sleep(0.2)

    def processes(self) -> list[psutil.Process]:
        """The processes of JobManager and TaskManager."""
        return [each for each in psutil.process_iter() if _MAIN in " ".join(_command(each))]

    def kill(self) -> None:
        """SIGKILL the TaskManager, and start another one."""
        for process in self.processes():
            if "TaskManagerRunner" in " ".join(_command(process)):
                process.kill()
                process.wait(JOB_S)
        self._script("taskmanager", "start")

    def _ready(self) -> bool:
        try:
            return bool(_rest("/overview")["slots-available"])
        except OSError:
            return False

    def _script(self, name: str, word: str) -> None:
        command = [str(self._home / "bin" / f"{name}.sh"), word]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def _fetch(self) -> None:
        python, jars = self._folder / "venv/bin/python", self._folder / "jars"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(self._folder / "venv")], check=True)
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, f"apache-flink-libraries=={VERSION}"], check=True)
        # Its Python dependencies are not needed.
        subprocess.run(
            [*pip, "--no-deps", "--only-binary=:all:", f"apache-flink=={VERSION}"], check=True
        )
        if not jars.exists():
            goal = ["dependency:copy-dependencies", "-DexcludeTransitive=true"]
            command = ["mvn", "-q", "-f", str(HERE / "pom.xml"), *goal]
            subprocess.run([*command, f"-DoutputDirectory={jars}"], check=True)

    def _configure(self) -> None:
        python = self._folder / "venv/bin/python"
        found = "import pyflink; print(list(pyflink.__path__)[0])"
        source = Path(subprocess.check_output([python, "-c", found], text=True).strip())
        shutil.rmtree(self._home, ignore_errors=True)
        for name in ("bin", "conf"):
            shutil.copytree(source / name, self._home / name)
        for name in ("lib", "opt"):
            (self._home / name).mkdir()
            for jar in (source / name).glob("*.jar"):
                (self._home / name / jar.name).symlink_to(jar)
        for jar in (self._folder / "jars").glob("*.jar"):
            place = "opt" if "gateway" in jar.name else "lib"
            (self._home / place / jar.name).symlink_to(jar)
        for name in ("plugins", "tmp", "log", "pid"):
            (self._home if name == "plugins" else self._folder).joinpath(name).mkdir(exist_ok=True)
        config = self._home / "conf/config.yaml"
        opens = re.search(r"^ +all: (.*)$", config.read_text(), re.MULTILINE)
        assert opens is not None
        config.write_text(CONFIG.format(opens=opens[1].strip(), folder=self._folder))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _rest(path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(REST + path, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read()
    return json.loads(body) if body else {}
