"""Models: what they answer, as foldline records it, and contexts as their APIs take them.

    async with turn.model_call(context, model="a-model", format=ANTHROPIC) as call:
        answer = await anthropic.messages.create(**call.request)
        calls = await call.complete(from_anthropic(answer.model_dump()))

Where no format is given, the harness renders a context by itself: `to_openai_messages`,
`to_anthropic_messages`, or `render` for the whole request.
"""

from foldline.producers.model import (
    ModelResponse,
    ToolRequest,
    from_anthropic,
    from_openai,
    from_responses,
)
from foldline.producers.model_call import (
    ModelCall,
)
from foldline.projections.render import (
    ANTHROPIC,
    FORMATS,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    render,
    request_bytes,
    to_anthropic_messages,
    to_openai_messages,
)
from foldline.projections.render_anthropic import (
    Caching,
)
from foldline.projections.wire import (
    FormatLimits,
    Json,
    ReadBlob,
)

__all__ = [
    "ANTHROPIC",
    "FORMATS",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "Caching",
    "FormatLimits",
    "Json",
    "ModelCall",
    "ModelResponse",
    "ReadBlob",
    "ToolRequest",
    "from_anthropic",
    "from_openai",
    "from_responses",
    "render",
    "request_bytes",
    "to_anthropic_messages",
    "to_openai_messages",
]
