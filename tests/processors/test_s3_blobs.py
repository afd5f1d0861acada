"""Blobs in a bucket, on a real S3 server that the test starts."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldline.errors import BlobError, LogUnavailableError, SettingsError
from foldline.processors import s3_blobs
from foldline.processors.blobs import BlobStore
from foldline.processors.open_blobs import open_blobs
from foldline.processors.open_log import open_log
from foldline.settings import Settings
from foldline.testing.blob_contract import MAX_BYTES, BlobContract

START_TIMEOUT_S = 60
AS_SOMEBODY = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request",
    "Content-Type": "application/octet-stream",
}
"""By which the server sees that a request is S3's; it checks no signature here."""


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _request(url: str, method: str = "GET", body: bytes | None = None) -> str:
    request = urllib.request.Request(url, body, AS_SOMEBODY, method=method)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.read().decode()


@contextmanager
def _server(folder: Path, **environment: str) -> Generator[str]:
    """An S3 server on loopback; gives its URL."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "s3.log").open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_for(server, url)
        yield url
    finally:
        server.kill()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], url: str) -> None:
    ends = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            _request(f"{url}/moto-api/")
        except urllib.error.URLError:
            assert server.poll() is None, "the S3 server ended"
            assert time.monotonic() < ends, "the S3 server did not start"
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def s3_environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def bucket(endpoint: str, s3_environment: None) -> str:  # noqa: ARG001
    """A new bucket that keeps every version of an object."""
    name = f"blobs-{uuid.uuid4().hex}"
    _request(f"{endpoint}/{name}", "PUT")
    on = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    _request(f"{endpoint}/{name}?versioning", "PUT", on)
    return name


@pytest.fixture
def blobs(bucket: str) -> BlobStore:
    return _open(f"s3://{bucket}/a/prefix")


def _open(url: str) -> BlobStore:
    settings = Settings(blobs=url, blob_max_bytes=MAX_BYTES)
    return open_blobs(settings, beside=Path("nowhere"))


def _object_url(endpoint: str, bucket: str, sha256: bytes) -> str:
    name = sha256.hex()
    return f"{endpoint}/{bucket}/a/prefix/{name[:2]}/{name[2:4]}/{name}"


class TestS3Blobs(BlobContract):
    """The contract of every blob store; the fixtures above give the bucket."""


def test_the_log_keeps_a_large_body_in_the_bucket(bucket: str) -> None:
    log = open_log("memory:", settings=Settings(blobs=f"s3://{bucket}"))
    data = b"x" * 6_000_000  # more than the library sends in one part by itself
    sha256 = log.blobs.put(data)
    assert _open_large(bucket).get(sha256) == data
    with pytest.raises(BlobError, match="00000000"):
        log.blobs.get(bytes(32))


def _open_large(bucket: str) -> BlobStore:
    return open_blobs(Settings(blobs=f"s3://{bucket}/"), beside=Path("nowhere"))


def test_an_object_that_exists_is_not_written_again(
    blobs: BlobStore, endpoint: str, bucket: str
) -> None:
    for _ in range(3):
        blobs.put(b"hello")
    assert _request(f"{endpoint}/{bucket}?versions").count("<VersionId>") == 1


@pytest.mark.parametrize("damage", [b"", b"hell", b"jello", b"hello\x00"])
def test_a_damaged_object_is_told_and_the_next_put_mends_it(
    blobs: BlobStore, endpoint: str, bucket: str, damage: bytes
) -> None:
    sha256 = blobs.put(b"hello")
    _request(_object_url(endpoint, bucket, sha256), "PUT", damage)
    with pytest.raises(BlobError, match="do not match"):
        blobs.get(sha256)
    blobs.put(b"hello")
    assert blobs.get(sha256) == b"hello"


def test_an_object_above_the_limit_is_not_downloaded(
    blobs: BlobStore, endpoint: str, bucket: str
) -> None:
    sha256 = blobs.put(b"hello")
    _request(_object_url(endpoint, bucket, sha256), "PUT", bytes(MAX_BYTES + 1))
    with pytest.raises(BlobError, match="1001 bytes, blob_max_bytes is 1000"):
        blobs.get(sha256)


def test_a_bucket_that_is_not_there_takes_nothing(s3_environment: None) -> None:  # noqa: ARG001
    missing = _open("s3://no-such-bucket/prefix")
    with pytest.raises(LogUnavailableError, match=r"NoSuchBucket|Not Found") as caught:
        missing.put(b"hello")
    assert caught.value.retryable
    with pytest.raises(BlobError):
        missing.get(bytes(32))


def test_a_bucket_that_denies_is_told_by_its_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    s3_environment: None,  # noqa: ARG001
) -> None:
    with _server(tmp_path, INITIAL_NO_AUTH_ACTION_COUNT="1") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        _request(f"{url}/closed", "PUT")
        closed = _open("s3://closed/prefix")
        with pytest.raises(LogUnavailableError, match=r"403|401"):
            closed.put(b"hello")
        with pytest.raises(LogUnavailableError, match=r"403|401"):
            closed.get(bytes(32))


def test_a_bucket_that_does_not_answer_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    s3_environment: None,  # noqa: ARG001
) -> None:
    monkeypatch.setattr(s3_blobs, "RETRIES", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{_free_port()}")
    unreachable = _open("s3://blobs/prefix")
    with pytest.raises(LogUnavailableError, match="error sending request"):
        unreachable.put(b"hello")
    with pytest.raises(LogUnavailableError, match="error sending request"):
        unreachable.get(bytes(32))


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "gs://bucket", "https://x/y"])
def test_what_is_neither_folder_nor_bucket_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="FOLDLINE_BLOBS"):
        _open(url)


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import foldline\n"
        "from foldline.processors.open_log import open_log\n"
        "open_log('memory:')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"FOLDLINE_BLOBS": "s3://bucket/prefix"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SettingsError" in done.stderr
    assert "pip install 'foldline[s3]'" in done.stderr
