"""Where a command writes: JSON lines for machines, coloured lines for people.

stdout carries the answer, stderr progress, remarks and errors. Nothing that a session
holds reaches either without `foldline.cli.clean`; JSON is ASCII and knows no NaN.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from foldline.cli.clean import clean_line, crop

if TYPE_CHECKING:
    from rich.console import Console

PIPE_CELLS = 200
"""How wide a line is when no terminal says how wide it is, and COLUMNS does not."""

MIN_CELLS = 40

Span = tuple[str, str]
"""A piece of a line: clean text, and a rich style (empty for none)."""


class Output:
    """The two streams of one command, and whether a person or a machine reads them."""

    def __init__(self, *, json_wanted: bool) -> None:
        self.json = json_wanted
        self._stdout: TextIO = _stream(sys.stdout)
        self._stderr: TextIO = _stream(sys.stderr)
        self._coloured = _colour_wanted(self._stdout)
        self._console: Console | None = None
        self._progress_shown = False

    @property
    def cells(self) -> int:
        """How many columns a line has."""
        if self._stdout.isatty():
            return max(shutil.get_terminal_size().columns, MIN_CELLS)
        given = os.environ.get("COLUMNS", "")
        return max(int(given), MIN_CELLS) if given.isdecimal() else PIPE_CELLS

    def record(self, view: dict[str, Any]) -> None:
        """Write one JSON object, on a line of its own."""
        text = json.dumps(view, ensure_ascii=True, allow_nan=False)
        self._stdout.write(text.replace("\x7f", "\\u007f") + "\n")

    def line(self, *spans: Span) -> None:
        """Write one line for people, no longer than the terminal is wide."""
        kept = list(_cropped(spans, self.cells))
        if not self._coloured:
            self._stdout.write("".join(text for text, _ in kept).rstrip() + "\n")
            return
        from rich.text import Text  # late: only a terminal needs it

        self._terminal().print(Text.assemble(*kept), soft_wrap=True)

    @property
    def on_terminal(self) -> bool:
        """Whether a terminal shows what is written."""
        return self._stdout.isatty()

    def verbatim(self, data: bytes) -> None:
        """Write bytes as they are: another program reads them, never a terminal."""
        self._stdout.flush()
        buffer: BinaryIO | None = getattr(self._stdout, "buffer", None)
        if buffer is not None:
            buffer.write(data)

    def text(self, text: str) -> None:
        """Write text of foldline's own making as it is (a schema, a list)."""
        self._stdout.write(text.rstrip() + "\n")

    def heading(self, text: str) -> None:
        """Write a heading, after an empty line."""
        self.line()
        self.line((text, "bold"))

    def flush(self) -> None:
        """Hand on what was written, so that a broken pipe shows here."""
        self._stdout.flush()

    def remark(self, text: str) -> None:
        """Say something beside the answer, on stderr."""
        self._clear_progress()
        self._stderr.write(clean_line(text) + "\n")
        self._stderr.flush()

    def progress(self) -> Callable[[str], None] | None:
        """A function that shows how far long work is; None where nobody watches."""
        return self._show_progress if not self.json and self._stderr.isatty() else None

    def end_progress(self) -> None:
        """Take the line of progress away."""
        self._clear_progress()

    def _show_progress(self, text: str) -> None:
        self._progress_shown = True
        columns = shutil.get_terminal_size().columns - 1
        self._stderr.write("\r\x1b[2K" + crop(clean_line(text), cells=columns))
        self._stderr.flush()

    def _clear_progress(self) -> None:
        if self._progress_shown:
            self._stderr.write("\r\x1b[2K")
            self._progress_shown = False

    def _terminal(self) -> "Console":
        if self._console is None:
            from rich.console import Console  # late: only a terminal needs it

            self._console = Console(
                file=self._stdout, force_terminal=True, highlight=False, emoji=False
            )
        return self._console


def _stream(stream: TextIO | None) -> TextIO:
    """A stream that takes every character; a closed one takes all and keeps nothing."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - not a path
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return stream


def _colour_wanted(stream: TextIO) -> bool:
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _cropped(spans: Iterable[Span], cells: int) -> Iterable[Span]:
    """The spans that fit into one line, the last one cut."""
    from rich.cells import cell_len  # late: rich is not needed for --json

    left = cells
    for text, style in spans:
        width = cell_len(text)
        if width > left:
            yield crop(text, cells=left), style
            return
        left -= width
        yield text, style
