"""A writer whose headers have names that are no text: no client for Python makes them.

It speaks to librdkafka itself, as a program in C or Go does.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from confluent_kafka import cimpl

NAME = b"\xff\xfe"
"""The name of the header that every record here has: no UTF-8."""

_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS, _END = 2, 3, 4, 5, 7, 10, 0
_COPY = 2
_PRODUCER = 0
_TIMEOUT_MS = 30_000


def put_strange(
    bootstrap: str, topic: str, partition: int, *, key: bytes, value: bytes
) -> None:
    """Write one record with such a header; done when a broker has it."""
    library = ctypes.CDLL(str(cimpl.__file__))
    producer = _producer(library, bootstrap)
    made = _made(library, "rd_kafka_topic_new")(producer, topic.encode(), None)
    headers = _made(library, "rd_kafka_headers_new")(ctypes.c_size_t(1))
    headers = ctypes.c_void_p(headers)
    name, length = NAME, ctypes.c_ssize_t(len(NAME))
    library.rd_kafka_header_add(headers, name, length, b"v", ctypes.c_ssize_t(1))
    failed = library.rd_kafka_producev(
        producer,
        *(_TOPIC, ctypes.c_void_p(made)),
        *(_PARTITION, ctypes.c_int32(partition)),
        *(_VALUE, value, ctypes.c_size_t(len(value))),
        *(_KEY, key, ctypes.c_size_t(len(key))),
        *(_FLAGS, _COPY),
        *(_HEADERS, headers),
        _END,
    )
    assert failed == 0
    assert library.rd_kafka_flush(producer, _TIMEOUT_MS) == 0
    library.rd_kafka_topic_destroy(ctypes.c_void_p(made))
    library.rd_kafka_destroy(producer)


def _producer(library: ctypes.CDLL, bootstrap: str) -> ctypes.c_void_p:
    error = ctypes.create_string_buffer(512)
    config = ctypes.c_void_p(_made(library, "rd_kafka_conf_new")())
    library.rd_kafka_conf_set(
        config, b"bootstrap.servers", bootstrap.encode(), error, ctypes.c_size_t(512)
    )
    producer = _made(library, "rd_kafka_new")(
        _PRODUCER, config, error, ctypes.c_size_t(512)
    )
    assert producer, error.value
    return ctypes.c_void_p(producer)


def _made(library: ctypes.CDLL, name: str) -> Callable[..., Any]:
    """A function of the library that gives a pointer."""
    function = library[name]
    function.restype = ctypes.c_void_p
    return function
