"""The messages of a context, put into a request one by one: what OpenAI's APIs share. Pure.

Images have no place in what the model said, nor always in a result: they are shown in a
user's message right behind.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from foldline.projections.context import Message, Part
from foldline.projections.wire import Image, Json, Wire, joined


class Dialogue(ABC):
    """What was said so far, as an API takes it; a class of each API says how."""

    def __init__(self, wire: Wire) -> None:
        self.said: list[Json] = []
        self._wire = wire
        self._below: list[Json] = []

    def add(self, message: Message) -> None:
        """Add a message of the context."""
        if message.role == "tool":
            self.said.extend(self._result(part) for part in message.parts)
            self.show_below()
        elif message.role == "assistant":
            self.show_below()
            self._answer(message)
        elif message.role == "user":
            self.show_below()
            self._ask(message.parts)

    def _ask(self, parts: Iterable[Part]) -> None:
        """Add what a user said."""
        self._say(self._shown(parts))

    def show_below(self) -> None:
        """Show the images that had no place where they belong."""
        shown, self._below = self._below, []
        self._say(shown)

    def _shown(self, parts: Iterable[Part]) -> list[Json]:
        content: list[Json] = []
        for part in parts:
            image = self._wire.image(part)
            if image is not None:
                content.append(self._image(image))
            elif text := joined([self._wire.text(part)]):
                content.append(self._text(text))
        return content

    def _hoisted(self, part: Part, of: str) -> str:
        """The text of a part; an image of it is shown below."""
        image = self._wire.image(part)
        if image is not None:
            self._below += [self._text(f"Image of {of}:"), self._image(image)]
        return self._wire.text(part, below=image is not None)

    @abstractmethod
    def _say(self, content: list[Json]) -> None:
        """Say something as a user, if there is anything to say."""

    @abstractmethod
    def _answer(self, message: Message) -> None:
        """Add what the model said."""

    @abstractmethod
    def _result(self, part: Part) -> Json:
        """The result of a call."""

    @staticmethod
    @abstractmethod
    def _text(text: str) -> Json:
        """A piece of text."""

    @staticmethod
    @abstractmethod
    def _image(image: Image) -> Json:
        """An image."""
