"""What an API would refuse of a rendered request, beyond what its types say. Pure.

    breaches(request, "anthropic")      an empty list, or one sentence for each breach

Written against the APIs' errors and not against the renderers: it takes any request.
"""

import json

from foldline.errors import SettingsError
from foldline.projections.rules_anthropic import anthropic
from foldline.projections.rules_openai import chat, responses
from foldline.projections.wire import Json

RULES = {"anthropic": anthropic, "openai-chat": chat, "openai-responses": responses}


def breaches(request: Json, format: str) -> list[str]:  # noqa: A002 - the word for it
    """What is wrong with a request in a format, one sentence each."""
    if format not in RULES:
        raise SettingsError("format", format, f"one of {', '.join(RULES)}")
    try:
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as problem:
        return [f"no JSON in UTF-8: {type(problem).__name__}"]
    return list(RULES[format](request))
