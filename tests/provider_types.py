"""The request types of two providers' own Python packages, made strict.

The packages describe requests as TypedDicts in which lists are any iterable and unknown
fields are ignored. Here lists are lists and unknown fields refused, so that a request
that validates is one that the package would send as it is.
"""

import collections.abc
import typing
from functools import cache
from typing import Any, cast

import typing_extensions
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter

TYPES: dict[str, type] = {
    "anthropic": MessageCreateParamsNonStreaming,
    "openai-chat": CompletionCreateParamsNonStreaming,
    "openai-responses": ResponseCreateParamsNonStreaming,
}


def validate(request: dict[str, Any], format: str) -> None:  # noqa: A002 - the word for it
    """Raise pydantic's ValidationError for a request that is not of the provider's type."""
    adapter(format).validate_python(request)


@cache
def adapter(format: str) -> TypeAdapter[object]:  # noqa: A002 - the word for it
    """The validator of a format's requests."""
    return TypeAdapter(_strict(TYPES[format], {}), config=None)


def _strict(hint: Any, made: dict[Any, Any]) -> Any:
    """A type hint with strict TypedDicts and lists in it."""
    if typing_extensions.is_typeddict(hint):
        return made[hint] if hint in made else _typed_dict(hint, made)
    origin = typing.get_origin(hint)
    if origin is None or origin is typing.Literal:
        return hint
    arguments = tuple(_strict(argument, made) for argument in typing.get_args(hint))
    if origin in (collections.abc.Iterable, collections.abc.Sequence, list):
        return list[arguments[0]]
    if origin is typing.Union:
        return typing.Union[arguments]  # noqa: UP007 - made at run time
    if origin is dict:
        return dict[arguments]  # type: ignore[valid-type]
    if origin in (typing_extensions.Required, typing_extensions.NotRequired):
        return origin[arguments[0]]
    return hint


def _typed_dict(hint: Any, made: dict[Any, Any]) -> Any:
    name = f"Strict{len(made)}{hint.__name__}"
    made[hint] = typing.ForwardRef(name)  # for a type that holds itself
    hints = typing_extensions.get_type_hints(hint, include_extras=True)
    required = cast("frozenset[str]", hint.__required_keys__)
    wraps = (typing_extensions.NotRequired, typing_extensions.Required)
    fields = {
        key: wraps[key in required][_strict(_unwrapped(value), made)]
        for key, value in hints.items()
    }
    strict: Any = typing_extensions.TypedDict(name, fields)  # type: ignore[operator]
    config = getattr(hint, "__pydantic_config__", {})
    extra = config.get("extra", "forbid")
    strict.__pydantic_config__ = ConfigDict(extra=extra, arbitrary_types_allowed=True)
    made[hint] = strict
    return strict


def _unwrapped(hint: Any) -> Any:
    if typing.get_origin(hint) in (
        typing_extensions.Required,
        typing_extensions.NotRequired,
    ):
        return typing.get_args(hint)[0]
    return hint
