"""Contexts: what a model is shown, how small it is kept, and who makes the summaries.

    mine = replace(POLICIES["lean"], name="mine", tools=(ToolRule("read_*", keep=True),))
    owned = await client.create(agent="coder", policy=mine)
    owned.summarise_by(ModelSummariser(ask, model="a-model"))

docs/context.md says what a policy does.
"""

from foldline.producers.model_summariser import (
    AskForSummary,
    ModelSummariser,
    Question,
)
from foldline.producers.shaping import (
    NamedPolicy,
)
from foldline.producers.summarisers import (
    Extractive,
    OpenModelCall,
    Summariser,
    SummaryRequest,
)
from foldline.projections.context import (
    Context,
    Message,
    Part,
    Shown,
)
from foldline.projections.digest import (
    Digest,
)
from foldline.projections.policy import (
    FULL,
    LEAN,
    POLICIES,
    ROOMY,
    ContextPolicy,
    SectionBudgets,
    ToolRule,
)
from foldline.projections.shaped import (
    Shaped,
)
from foldline.projections.summarising import (
    Originals,
)
from foldline.projections.token_count import (
    TokenCounter,
)
from foldline.tokenizers import (
    Tokens,
    default_counter,
)

__all__ = [
    "FULL",
    "LEAN",
    "POLICIES",
    "ROOMY",
    "AskForSummary",
    "Context",
    "ContextPolicy",
    "Digest",
    "Extractive",
    "Message",
    "ModelSummariser",
    "NamedPolicy",
    "OpenModelCall",
    "Originals",
    "Part",
    "Question",
    "SectionBudgets",
    "Shaped",
    "Shown",
    "Summariser",
    "SummaryRequest",
    "TokenCounter",
    "Tokens",
    "ToolRule",
    "default_counter",
]
