"""An etcd server for tests: a process on free ports, with its data in a temporary directory."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports

SCRIPT: Final = Path(__file__).parents[1] / "scripts" / "etcd"
_prefixes = itertools.count()


@cache
def etcd_path() -> Path | str:
    """Return the path of etcd, or the reason why it is missing. OTTLA_TEST_ETCD names another one."""
    if "OTTLA_TEST_ETCD" in os.environ:
        return Path(os.environ["OTTLA_TEST_ETCD"])
    ran = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    if ran.returncode:
        return ran.stderr.strip().rpartition("\n")[2]
    return Path(ran.stdout.strip())


class EtcdServer:
    """One member of an etcd cluster; alone by default.

    tls  for clients with TLS: that of a client; the options name the server's files
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        name: str = "one",
        ports: Sequence[int] = (),
        cluster: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        path = etcd_path()
        if isinstance(path, str):
            pytest.skip(path)
        self.binary = path
        self.directory = directory
        self.port, self.peer_port = ports or free_ports(2)
        self._name = name
        self._cluster = cluster or f"{name}=http://127.0.0.1:{self.peer_port}"
        self._options = options
        self._tls = tls
        self._scheme = "http" if tls is None else "https"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / self._name

    def url(self, *others: "EtcdServer") -> str:
        """Return a URL with a prefix that was not used before."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self, *others))
        return f"etcd://{hosts}/test/{next(_prefixes)}"

    def start(self, *, wait: bool = True) -> None:
        command: list[str | Path] = [self.binary, "--name", self._name, "--data-dir", self.data]
        for option, port in (("client", self.port), ("peer", self.peer_port)):
            scheme = self._scheme if option == "client" else "http"
            command += [f"--listen-{option}-urls", f"{scheme}://127.0.0.1:{port}"]
        command += ["--advertise-client-urls", f"{self._scheme}://127.0.0.1:{self.port}"]
        command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer_port}"]
        command += ["--initial-cluster", self._cluster, "--heartbeat-interval", "20", "--election-timeout", "200"]
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{self._name}.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the server answers reads."""
        deadline = time.monotonic() + 20
        while True:
            assert self._process is not None
            assert self._process.poll() is None, "etcd has ended: see its log"
            try:
                self.post("/v3/kv/range", {"key": "AA=="})
                return
            except urllib.error.HTTPError as cause:  # 503 until there is a leader
                cause.close()
            except OSError:
                pass  # does not listen yet
            assert time.monotonic() < deadline, "etcd does not answer"
            time.sleep(0.02)

    def post(self, target: str, request: dict[str, Any], token: str = "") -> Any:
        """Make a request of the JSON gateway."""
        headers = {"Authorization": token} if token else {}
        url = f"{self._scheme}://127.0.0.1:{self.port}{target}"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(request).encode(), headers), timeout=5, context=self._tls
        ) as got:
            return json.load(got)

    def add_member(self, name: str) -> "EtcdServer":
        """Add a member to the cluster of this one, and start it."""
        known = self.post("/v3/cluster/member/list", {})["members"]
        added = EtcdServer(self.directory, "--initial-cluster-state", "existing", name=name)
        peer = f"http://127.0.0.1:{added.peer_port}"
        deadline = time.monotonic() + 20
        while True:
            try:
                self.post("/v3/cluster/member/add", {"peerURLs": [peer]})
                break
            except urllib.error.HTTPError as cause:  # 503 until the member that was added before is in step
                if cause.code != 503 or time.monotonic() > deadline:
                    raise
                cause.close()
                time.sleep(0.1)
        members = [f"{member['name']}={url}" for member in known for url in member["peerURLs"]]
        added._cluster = ",".join([*members, f"{name}={peer}"])
        added.start()
        return added

    def revision(self) -> int:
        return int(self.post("/v3/kv/range", {"key": "AA=="})["header"]["revision"])

    def kill(self) -> None:
        """End the process at once, as often as needed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Until every thread has stopped, a request could still be answered.
        tasks = Path(f"/proc/{self._process.pid}/task")
        while not all(_is_stopped(task) for task in tasks.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def save(self, snapshot: Path) -> None:
        """Write a snapshot of everything to a file."""
        self._tool("etcdctl", "--endpoints", f"127.0.0.1:{self.port}", "snapshot", "save", snapshot)

    def restore(self, snapshot: Path, *options: str) -> None:
        """Start again with what a snapshot has, as a new cluster."""
        self.kill()
        self.erase()
        tool = "etcdutl" if self.binary.with_name("etcdutl").exists() else "etcdctl"  # since etcd 3.5, 3.4
        peer = ("--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer_port}")
        where = ("--data-dir", self.data, "--name", self._name, "--initial-cluster", self._cluster)
        self._tool(tool, "snapshot", "restore", snapshot, *where, *peer, *options)
        self.start()

    def _tool(self, name: str, *arguments: str | Path) -> None:
        program = self.binary.with_name(name)
        if not program.exists():
            pytest.skip(f"there is no {name} beside etcd")
        environment = {**os.environ, "ETCDCTL_API": "3"}
        subprocess.run([program, *arguments], check=True, capture_output=True, env=environment)

    def erase(self) -> None:
        shutil.rmtree(self.data)


@contextlib.contextmanager
def running(directory: Path, *options: str) -> Iterator[EtcdServer]:
    """Run an etcd of one member."""
    server = EtcdServer(directory, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def running_cluster(directory: Path, members: int = 3) -> Iterator[list[EtcdServer]]:
    """Run an etcd of several members."""
    names = ["one", "two", "three", "four", "five"][:members]
    ports = free_ports(2 * members)
    pairs = [ports[2 * index : 2 * index + 2] for index in range(members)]
    cluster = ",".join(f"{name}=http://127.0.0.1:{pair[1]}" for name, pair in zip(names, pairs, strict=True))
    servers = [
        EtcdServer(directory, name=name, ports=pair, cluster=cluster) for name, pair in zip(names, pairs, strict=True)
    ]
    try:
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


def _is_stopped(task: Path) -> bool:
    """Return True if a thread is stopped, or has ended."""
    try:
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0] in "TtZX"
    except OSError:
        return True
