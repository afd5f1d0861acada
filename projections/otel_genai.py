"""Names of OpenTelemetry's conventions for generative AI, as strings of our own. Pure.

The constants of OpenTelemetry's package are deprecated and the conventions have moved to
a repository of their own, so that no import is safe. What differs between versions is in
`Names`; what is the same in all of them stands beside it. What foldline knows beyond the
conventions begins with `foldline.`.
"""

from dataclasses import dataclass

OPERATION = "gen_ai.operation.name"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

CONVERSATION_ID = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
"""All of a request's input, what was read from and written to a cache included."""
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

OURS = "foldline."
"""What begins the name of everything that the conventions have no name for."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a version of the conventions calls things; empty where it has no name."""

    version: str
    schema_url: str
    cache_write_tokens: str
    reasoning_tokens: str
    time_to_first_chunk: str
    compacted: str


GENAI_0_1 = Names(
    version="genai/0.1.0",
    schema_url="https://opentelemetry.io/schemas/gen-ai/0.1.0",
    cache_write_tokens="gen_ai.usage.cache_write.input_tokens",
    reasoning_tokens="gen_ai.usage.reasoning.output_tokens",
    time_to_first_chunk="gen_ai.response.time_to_first_chunk",
    compacted="gen_ai.conversation.compacted",
)
"""The first release of the conventions on their own."""

UTIL_1_3 = Names(
    version="util-1.3",
    schema_url="https://opentelemetry.io/schemas/1.37.0",
    cache_write_tokens="gen_ai.usage.cache_creation.input_tokens",
    reasoning_tokens=OURS + "usage.reasoning.output_tokens",
    time_to_first_chunk=OURS + "response.time_to_first_chunk",
    compacted=OURS + "conversation.compacted",
)
"""What `opentelemetry-util-genai` 1.3 sends: the names before that release."""

VERSIONS: dict[str, Names] = {names.version: names for names in (GENAI_0_1, UTIL_1_3)}
