"""Images that a client shows again and again: read from the store once."""

from pathlib import Path

import pytest

from foldline.errors import BlobError
from foldline.producers.client import connect
from foldline.producers.kept_blobs import KeptBlobs
from foldline.producers.model import ModelResponse
from foldline.schemas.blocks import Block
from foldline.schemas.events import UserMessage


class Store:
    """A store that says how often it was read."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []

    def read(self, sha256: bytes) -> bytes:
        """Some bytes; of one hash there are none."""
        self.reads.append(sha256)
        if sha256 == b"gone":
            raise BlobError(sha256.hex(), "it is not there")
        return sha256 * 10


def test_what_was_read_is_kept_up_to_a_size_and_what_was_unused_longest_goes() -> None:
    store, kept = Store(), KeptBlobs(max_bytes=25)
    read = kept.through(store.read)
    for name in (b"a", b"b", b"a", b"c", b"a", b"b"):
        assert read(name) == name * 10
    assert store.reads == [b"a", b"b", b"c", b"b"]


def test_what_is_larger_than_all_that_is_kept_is_read_each_time() -> None:
    store, kept = Store(), KeptBlobs(max_bytes=5)
    read = kept.through(store.read)
    assert [read(b"a"), read(b"a")] == [b"a" * 10] * 2
    assert len(store.reads) == 2


def test_what_is_gone_is_looked_for_again() -> None:
    store, kept = Store(), KeptBlobs()
    for _ in range(2):
        with pytest.raises(BlobError):
            kept.through(store.read)(b"gone")
    assert len(store.reads) == 2


def lose(folder: Path, size: int) -> None:
    """What has a size below a folder is gone."""
    for path in folder.rglob("*"):
        if path.stat().st_size == size:
            path.unlink()


async def test_a_sessions_images_are_read_from_the_store_once(tmp_path: Path) -> None:
    """Each call shows them again, also where nobody could read them any more."""
    async with connect(f"sqlite:///{tmp_path}/sessions.db") as client:
        owned = await client.create(agent="a")
        data = b"\x89PNG" + b"x" * 100_000
        blob = await owned.store(data, media_type="image/png")
        await owned.append(
            UserMessage(message_id="u", blocks=(Block(kind="image", body=blob),))
        )
        sent: list[object] = []
        async with owned.turn("look") as turn:
            for _ in range(2):
                context = await turn.context()
                async with turn.model_call(context, model="m", format="anthropic") as call:
                    sent.append(call.request["messages"][0]["content"][0])
                    await call.complete(ModelResponse.of("ok"))
                lose(tmp_path, len(data))
    assert sent[0] == sent[1]
    assert str(sent[0]).startswith("{'type': 'image'")
