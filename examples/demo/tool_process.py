"""One tool call in a process of its own: `python -I tool_process.py TOOL < INPUT`.

It starts in the repository, without the environment of the harness, does one thing and
is gone. INPUT is a JSON object. stdout is what the model is shown; any exit code but 0
means that the tool failed, and stderr says why.
"""

import contextlib
import http.client
import io
import json
import subprocess
import sys
import unittest
from collections.abc import Callable
from pathlib import Path


def read_file(path: str) -> str:
    """The text of a file of the repository."""
    return _inside(path).read_text(encoding="utf-8")


def write_file(path: str, content: str) -> str:
    """Write a whole file. Written twice it is the same file."""
    target = _inside(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    return f"wrote {len(content)} characters to {path}"


def run_tests() -> str:
    """Run the unit tests and give their report."""
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        suite = unittest.defaultTestLoader.discover("tests", top_level_dir=".")
        result = unittest.TextTestRunner(stream=report).run(suite)
    verdict = "PASSED" if result.wasSuccessful() else "FAILED"
    return f"{report.getvalue()}\n{verdict}: {result.testsRun} tests"


def commit(message: str) -> str:
    """Commit everything. A second time there is nothing left to commit."""
    if not Path(".git").is_dir():
        return "no git on this machine: the change is in the folder, not committed"
    _git("add", "--all")
    if _git("status", "--porcelain"):
        _git("commit", "--quiet", f"--message={message}")
    return _git("log", "-1", "--format=%h %s")


def send_mail(post_office: str, message_id: str, to: str, subject: str, text: str) -> str:
    """Hand a mail in. What is sent is sent: twice handed in, twice sent."""
    mail = {"message_id": message_id, "to": to, "subject": subject, "text": text}
    connection = http.client.HTTPConnection(post_office)
    connection.request("POST", "/mails", json.dumps(mail))
    return f"sent as mail {json.load(connection.getresponse())['number']}"


TOOLS: dict[str, Callable[..., str]] = {
    tool.__name__: tool for tool in (read_file, write_file, run_tests, commit, send_mail)
}


def _inside(path: str) -> Path:
    target = Path(path).resolve()
    if not target.is_relative_to(Path.cwd()):
        sys.exit(f"{path} is outside of the repository")
    return target


def _git(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - git, with arguments and no shell
        ["git", *arguments],  # noqa: S607 - the one of PATH
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def main() -> None:
    """Do what the first argument names, with the input on stdin."""
    try:
        print(TOOLS[sys.argv[1]](**json.load(sys.stdin)))
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
