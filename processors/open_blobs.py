"""A blob store from its setting: a folder, or an S3-compatible bucket."""

from pathlib import Path

from foldline.processors.blobs import BlobStore
from foldline.processors.file_blobs import FileBlobs
from foldline.settings import Settings


def open_blobs(settings: Settings, *, beside: Path) -> BlobStore:
    """The blob store that `FOLDLINE_BLOBS` names; the folder `beside` without one."""
    folder = Path(settings.blobs).expanduser() if settings.blobs else beside
    return FileBlobs(folder, max_bytes=settings.blob_max_bytes)
