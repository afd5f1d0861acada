"""A history as its contexts would be by another policy, within limits.

It is shaped at each of its model calls, as if that policy had been used from the start.
"""

from dataclasses import replace
from itertools import accumulate

from foldline.errors import SettingsError
from foldline.processors.log import Log
from foldline.projections.context import Context, Sources, bytes_with_texts, text_blobs
from foldline.projections.model_calls import main_calls
from foldline.projections.policy import ContextPolicy
from foldline.projections.reading import Past, read_texts
from foldline.projections.shaper import Shaper, place_behind
from foldline.projections.token_count import Reader
from foldline.schemas.recorded import Recorded
from foldline.tokenizers import default_counter

SHAPED_EVENTS_MAX = 20_000
SHAPED_BYTES_MAX = 64 * 1024 * 1024
"""How much of a session, its texts included, is shaped anew by another policy: that is
done at every model call that it made."""

SHAPED_WORK_MAX = 1_000_000
"""How many events all the contexts may rest on together that are built for that: a minute
or two of work."""

TOKENS_PER_BYTE_MAX = 4
"""How many tokens a context may have for each byte of its events: that of an image, which
counts by a rule. Fewer than any step of a policy are not built to find that out."""

_TOO_LARGE = (
    f"a session of at most {SHAPED_EVENTS_MAX} events and {SHAPED_BYTES_MAX} bytes, its "
    "texts included; without a policy a context has no limit"
)

_TOO_MUCH_WORK = (
    f"one by which the contexts of this session rest on at most {SHAPED_WORK_MAX} events "
    "together: a smaller budget makes them shorter"
)


def whole_history(log: Log, session_id: str, upto_seq: int) -> Sources:
    """A history from its first event on.

    Raises:
        SettingsError: it is too large to be shaped anew.
    """
    state = log.state(session_id)
    events: list[Recorded] = []
    size = 0
    for recorded in Past(log, state).each(0, upto_seq) if state else ():
        size += bytes_with_texts(recorded)
        if len(events) >= SHAPED_EVENTS_MAX or size > SHAPED_BYTES_MAX:
            raise SettingsError("policy", session_id, _TOO_LARGE)
        events.append(recorded)
    return Sources(events, texts=read_texts(log.blobs, text_blobs(events)))


def shaped_by(
    policy: ContextPolicy, sources: Sources, reader: Reader
) -> tuple[Context, Sources]:
    """A context as if its owner had used a policy, and the events that this gives.

    Raises:
        SettingsError: that is too much work.
    """
    shaper = Shaper(policy, default_counter(), reader, sources.texts)
    events = sources.events
    calls = main_calls(events) if policy.makes_smaller else ()
    sizes = [*accumulate(map(bytes_with_texts, events))] if calls else []
    work = 0
    for call in calls:
        count = place_behind(events, call.upto_seq)
        if count and sizes[count - 1] * TOKENS_PER_BYTE_MAX < policy.least_step_tokens:
            shaper.saw(call.upto_seq)
            continue
        shaper.shape(events[:count])
        work += shaper.rests_on
        if work > SHAPED_WORK_MAX:
            raise SettingsError("policy", policy.name, _TOO_MUCH_WORK)
    context = shaper.shape(events)
    return context, replace(sources, events=shaper.merged)
