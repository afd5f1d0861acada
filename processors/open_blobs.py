"""A blob store from its setting: a folder, or an S3-compatible bucket."""

import re
from pathlib import Path

from foldline.errors import SettingsError
from foldline.processors.blobs import BlobStore
from foldline.processors.file_blobs import FileBlobs
from foldline.settings import Settings

S3 = "s3://"
WANTED = "a folder, or s3://bucket/prefix"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def open_blobs(settings: Settings, *, beside: Path) -> BlobStore:
    """The blob store that `FOLDLINE_BLOBS` names; the folder `beside` without one.

    Raises:
        SettingsError: neither a folder nor a bucket, or no library for it.
    """
    if settings.blobs.startswith(S3):
        from foldline.processors.s3_blobs import S3Blobs  # late: an extra

        return S3Blobs.open(settings.blobs, max_bytes=settings.blob_max_bytes)
    if _SCHEME.match(settings.blobs):
        raise SettingsError("FOLDLINE_BLOBS", settings.blobs, WANTED)
    folder = blob_folder(settings, beside=beside)
    return FileBlobs(folder, max_bytes=settings.blob_max_bytes)


def blob_folder(settings: Settings, *, beside: Path) -> Path:
    """The folder that `FOLDLINE_BLOBS` names, where that is no bucket; else `beside`."""
    return Path(settings.blobs).expanduser() if settings.blobs else beside


def blobs_beside(path: Path) -> Path:
    """The folder for blobs beside a log's file."""
    return path.with_name(f"{path.name}.blobs")
