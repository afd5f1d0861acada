"""The world outside: a mail server that sends whatever it is given, as often as it is.

It knows nothing of foldline and removes no doubles: a mail that is handed in twice is
sent twice. Its ledger (one JSON line per mail sent) can be asked by Message-ID.

    POST /mails                 send one; the answer is its number
    GET  /mails/<message_id>    those sent under this id
"""

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

Mail = dict[str, str]


class Ledger:
    """The mails that were sent, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.touch()

    def sent(self) -> list[Mail]:
        """Every mail, the oldest first."""
        lines = self._path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]  # what follows is half a line

    def send(self, mail: Mail) -> int:
        """Send a mail; gives its number, from 1."""
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(mail) + "\n")
            file.flush()
            os.fsync(file.fileno())
            return len(self.sent())


class PostOffice(ThreadingHTTPServer):
    """Serves one ledger on a free port of this machine."""

    daemon_threads = True

    def __init__(self, ledger: Ledger, *, answer_after_s: float) -> None:
        super().__init__(("127.0.0.1", 0), Counter)
        self.ledger = ledger
        self.answer_after_s = answer_after_s

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay calm where a customer hangs up before the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Counter(BaseHTTPRequestHandler):
    """Where mails are handed in and asked for."""

    def do_POST(self) -> None:
        """Send the mail at once; the answer may take its time."""
        office = cast("PostOffice", self.server)
        size = int(self.headers["Content-Length"])
        number = office.ledger.send(json.loads(self.rfile.read(size)))
        if number == 1:
            time.sleep(office.answer_after_s)
        self._answer({"number": number})

    def do_GET(self) -> None:
        """Say which mails were sent under a Message-ID."""
        office = cast("PostOffice", self.server)
        wanted = self.path.removeprefix("/mails/")
        found = [
            {"number": number} | mail
            for number, mail in enumerate(office.ledger.sent(), start=1)
            if mail["message_id"] == wanted
        ]
        self._answer(found)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
        """Keep quiet: the story is told elsewhere."""

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Open the counter, print its port, and serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--answer-after-s", type=float, default=0)
    options = parser.parse_args()
    office = PostOffice(Ledger(options.ledger), answer_after_s=options.answer_after_s)
    print(office.server_address[1], flush=True)
    office.serve_forever()


if __name__ == "__main__":
    main()
