"""Who folds the same number of events beside foldline's worker, in the same run.

Each does a fold of `peers/session_fold.py` on the same topic, in one process, with
RocksDB and a changelog; environments and builds lie in the benchmarks' cache folder,
never in the source tree. A peer whose tools are missing is left out, with the reason.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker import Broker, Filled, Rates
from measure import CACHE_FOLDER, say
from worker_log import TIED

from foldline.topics import partition_for

PEERS_FOLDER = Path(__file__).parent / "peers"
EVENT_BYTES = 500
STOP_S = 20.0

QUIXSTREAMS = "quixstreams"
FAUST = "faust"
KAFKA_STREAMS = "kafka_streams"
KAFKA_STREAMS_CACHED = "kafka_streams_cached"
ADMITTING = "admitting"
BARE = "bare"

VERSIONS = {
    QUIXSTREAMS: ("quixstreams==3.28.1",),
    # A newer click than its own command line can do with.
    FAUST: ("faust-streaming==0.15.3", "click<8.4", "orjson", "rocksdict==0.3.29"),
}
STREAMS_VERSION = "4.4.0"


class MissingToolError(Exception):
    """A peer cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a peer is to consume and how, where it is to write, and as whom."""

    fold: str
    broker: Broker
    source: str
    target: str
    group: str
    folder: Path
    partitions: int


def interpreter(name: str) -> Path:
    """The Python of an environment that has a peer; made if it is not there."""
    wanted = VERSIONS[name]
    folder = CACHE_FOLDER / wanted[0].replace("==", "-")
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        say(f"installing {' '.join(wanted)} into {folder}")
        pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([python, *pip, *wanted], check=True)
        except subprocess.CalledProcessError as error:
            raise MissingToolError(f"{wanted[0]} was not installed") from error
        ready.touch()
    return python


def streams_classpath() -> str:
    """The class path of the Kafka Streams application, built if it is not there."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed")
    out = CACHE_FOLDER / f"kafka-streams-{STREAMS_VERSION}"
    jar = out / "kafka-streams-fold-1.jar"
    sources = [p for p in (PEERS_FOLDER / "kafka-streams").rglob("*") if p.is_file()]
    newest = max(source.stat().st_mtime for source in sources)
    if not jar.exists() or jar.stat().st_mtime < newest:
        say(f"building Kafka Streams {STREAMS_VERSION} in {out}")
        project = PEERS_FOLDER / "kafka-streams" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", str(project), f"-Dout={out}", "package"]
        try:
            subprocess.run(command, check=True, stdout=sys.stderr)
        except subprocess.CalledProcessError as error:
            raise MissingToolError("Maven did not build it; see above") from error
    return f"{jar}{os.pathsep}{out / 'lib'}{os.sep}*"


def _places(job: Job) -> list[str]:
    return [job.broker.bootstrap, job.group, job.source, job.target, str(job.folder)]


def _python(name: str, job: Job) -> list[str]:
    script = PEERS_FOLDER / f"{name}_fold.py"
    return [str(interpreter(name)), str(script), job.fold, *_places(job)]


def _quixstreams(job: Job) -> list[str]:
    return _python(QUIXSTREAMS, job)


def _faust(job: Job) -> list[str]:
    return [*_python(FAUST, job), str(job.partitions)]


def _streams(job: Job, cache: str) -> list[str]:
    flags = ["-XX:+UseParallelGC", "-Xmx1g", "-cp", streams_classpath()]
    main = "foldline.benchmarks.SessionFold"
    return ["java", *flags, main, job.fold, cache, *_places(job)]


COMMANDS: dict[str, Callable[[Job], list[str]]] = {
    KAFKA_STREAMS: lambda job: _streams(job, "plain"),
    KAFKA_STREAMS_CACHED: lambda job: _streams(job, "cached"),
    QUIXSTREAMS: _quixstreams,
    FAUST: _faust,
}


def records(fold: str, *, events: int, sessions: int, partitions: int) -> Iterator[Filled]:
    """So many events of 500 bytes, the sessions in turns as in foldline's `appends`."""
    keys = [f"session-{number:028d}" for number in range(sessions)]
    places = [(partition_for(key, partitions), key.encode()) for key in keys]
    value_of = _admitting_value if fold == ADMITTING else _bare_value
    for number in range(events):
        partition, key = places[number % sessions]
        yield Filled(partition, key, value_of(number, key, number // sessions))


_BARE = [bytes([status]) + b"." * (EVENT_BYTES - 1) for status in range(4)]
_STATUSES = (b"requested", b"started", b"completed", b"ended")
_EVENT = (
    b'{"event_id":"01980000-0000-7000-8000-%012x","session_id":"%s","type":"ToolCall",'
    b'"status":"%s","occurred_at":1796000000000000,"actor":{"kind":"AGENT","id":"coder"},'
    b'"text":"'
)


def _bare_value(_number: int, _key: bytes, turn: int) -> bytes:
    return _BARE[turn % 4]


def _admitting_value(number: int, key: bytes, turn: int) -> bytes:
    head = _EVENT % (number, key, _STATUSES[turn % 4])
    return head.ljust(EVENT_BYTES - 2, b".") + b'"}'


@contextmanager
def running(command: list[str], log: Path) -> Generator["subprocess.Popen[bytes]"]:
    """A process, whose output goes to a file, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*TIED, *command], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure(name: str, job: Job, *, limit_s: float) -> Rates:
    """How fast a peer is: all events, or as many as it does within the time.

    Raises:
        MissingToolError: it cannot run here.
        AssertionError: it ended by itself; the message says what it said.
    """
    command = COMMANDS[name](job)
    job.broker.create(job.target, partitions=job.partitions)
    job.folder.mkdir(parents=True)
    log = job.folder.with_suffix(".log")
    try:
        with running(command, log) as process:
            job.broker.wait_consumed(
                job.group,
                job.source,
                limit_s=limit_s,
                alive=lambda: process.poll() is None,
            )
    except AssertionError as error:
        raise AssertionError(f"{name}: {log.read_text()[-2_000:]}") from error
    return job.broker.rates(job.target)
