"""Object stores on loopback for tests. Each context manager yields an endpoint URL and ends what it started."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cleanup_project.operations.servers import sweep_sockets

ACCESS_KEY, SECRET_KEY = "OWNERKEY", "ownersecret"
STRANGER_KEY, STRANGER_SECRET = "STRANGERKEY", "strangersecret"
REGION = "us-east-1"


def aws_environment() -> dict[str, str]:
    """The owner's credentials in the default chain, which finds nothing else on this machine."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client(endpoint_url: str):
    """A plain boto3 client of the owner, to prepare buckets with."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(s3={"addressing_style": "path"}),
    )


@contextmanager
def moto_server() -> Iterator[str]:
    """moto in a process of its own: quick, in memory, no authentication."""
    (port,) = _free_ports(1)
    with tempfile.TemporaryDirectory(prefix="moto") as work:
        command = [_tool("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
        with _running(command, Path(work)) as process:
            yield _ready(f"http://127.0.0.1:{port}", process, Path(work))


@contextmanager
def seaweed_server() -> Iterator[str]:
    """SeaweedFS, a real server with authentication; about ten seconds to start and under 1 GB of memory."""
    with seaweed() as server:
        server.start()
        yield server.url


@contextmanager
def seaweed() -> Iterator["Seaweed"]:
    """A SeaweedFS that is still to be started, and that may be stopped and started again: it keeps its data and address."""
    with tempfile.TemporaryDirectory(prefix="weed") as work, ExitStack() as held:
        server = Seaweed(Path(work))
        held.enter_context(sweep_sockets(server.ports))
        held.callback(server.stop)
        yield server


class Seaweed:
    def __init__(self, folder: Path) -> None:
        names = ("master", "volume", "filer", "s3")
        self.folder, self.ports = folder, _free_ports(2 * len(names))
        self.url = f"http://127.0.0.1:{self.ports[6]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"
        (folder / "data").mkdir()
        (folder / "s3.json").write_text(json.dumps({"identities": _seaweed_identities()}))
        self._command = [
            *(_tool("weed"), "-logtostderr=true", "server", f"-dir={folder / 'data'}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
            *("-volume.max=2000", "-master.volumeSizeLimitMB=64", "-volume.minFreeSpacePercent=1"),
            *("-filer", f"-filer.localSocket={folder / 'filer.sock'}", "-s3", f"-s3.localSocket={folder / 's3.sock'}"),
            *(f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{name}.port={port}" for name, port in zip(names, self.ports[::2], strict=True)),
            *(f"-{name}.port.grpc={port}" for name, port in zip(names, self.ports[1::2], strict=True)),
        ]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        _ready(self.url, self._process, self.folder)

    def stop(self) -> None:
        """At once: it takes over ten seconds to end politely."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _seaweed_identities() -> list[dict[str, object]]:
    def identity(name: str, access_key: str, secret_key: str, actions: list[str]) -> dict[str, object]:
        return {"name": name, "credentials": [{"accessKey": access_key, "secretKey": secret_key}], "actions": actions}

    return [
        identity("owner", ACCESS_KEY, SECRET_KEY, ["Admin", "Read", "List", "Tagging", "Write"]),
        identity("stranger", STRANGER_KEY, STRANGER_SECRET, ["Read:none"]),
    ]


def _tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _running(command: Sequence[str], work: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=work)
        try:
            yield process
        finally:
            process.kill()  # its data goes with it; SeaweedFS takes over ten seconds to end politely
            process.wait()


def _ready(endpoint_url: str, process: subprocess.Popen[bytes], work: Path) -> str:
    """Wait until a bucket can be made: SeaweedFS answers before its volumes are there."""
    probe, until = client(endpoint_url), time.monotonic() + 60
    bucket = f"ready{uuid4().hex}"  # a new one each time: a server that was stopped still has the first
    try:
        while process.poll() is None and time.monotonic() < until:
            try:
                probe.create_bucket(Bucket=bucket)
                probe.put_object(Bucket=bucket, Key="ready", Body=b"ready")
            except (BotoCoreError, ClientError):
                time.sleep(0.2)
            else:
                return endpoint_url
    finally:
        probe.close()
    raise RuntimeError(f"{endpoint_url} did not start:\n" + (work / "log").read_text(errors="replace")[-3000:])
