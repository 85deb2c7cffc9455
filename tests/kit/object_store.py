"""A stand-in for S3 on loopback, as a process of its own: moto's server, which counts what it is asked."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

STARTS_WITHIN_S = 60


@contextmanager
def running_store() -> Iterator[dict[str, str]]:
    """Storage options of a store with one bucket, `bucket`."""
    if find_spec("moto") is None and not os.environ.get("CI"):
        pytest.skip("needs moto's server, the stand-in for S3: pip install 'muster[dev]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.tables.object_store", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(process, url)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anything",
        }
    finally:
        process.kill()
        process.wait()


def _make_bucket(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=10).close()
            return
        except OSError:
            assert process.poll() is None, "moto's server did not start"
            assert time.monotonic() < deadline, "moto's server does not answer"
            time.sleep(0.1)
