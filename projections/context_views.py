"""Contexts, their differences and requests as plain data: what people and machines see.

    view = context_view(log, session_id, Wanted(at_seq=40, format="anthropic"))
    view = context_view(built(log, session_id, wanted), default_counter())
    view = difference_view(before, after, counter, read_blob=log.blobs.get)
    view = request_view(rebuilt)

Tokens are counted only where they are asked for: the first count loads a vocabulary.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from foldline.processors.log import Log
from foldline.projections.building import build
from foldline.projections.context import (
    Context,
    Sources,
    texts_gone,
)
from foldline.projections.explain import ShownMessage, explain
from foldline.projections.model_calls import Asked, main_calls
from foldline.projections.policy import (
    DEFAULT,
    MESSAGES,
    POLICIES,
    ContextPolicy,
    policy_named,
)
from foldline.projections.prefix import difference
from foldline.projections.reading import (
    last_asked,
    last_calls,
    sources_of,
)
from foldline.projections.request import Form, Rebuilt, body_of, bytes_of
from foldline.projections.shaped_anew import shaped_by, whole_history
from foldline.projections.token_count import (
    CALIBRATED_CALLS,
    Calibration,
    Reader,
    Sizes,
    TokenCounter,
    calibrate,
    context_tokens,
    samples_of,
)
from foldline.projections.views import plain
from foldline.schemas.events import RequestRef

TEXT_SHOWN_CHARS = 2_000
"""How much of a message an explanation quotes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which context, and in which form; at the head where no seq is given.

    An empty `form.model` stands for the model that was last asked. With a policy the
    context is as if the session's owner had used that from the start.
    """

    at_seq: int | None = None
    form: Form = field(default_factory=Form)
    policy: ContextPolicy | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A context, what it was built from, and the request that it makes, if it does.

    `sources` are the events of the log, `shaped` what a policy would have made of them.
    """

    context: Context
    sources: Sources
    shaped: Sources
    form: Form
    body: dict[str, Any]
    policy: ContextPolicy | None = None
    """The policy that keeps it: as it was asked for, or as the last calls had it."""

    @property
    def reader(self) -> Reader:
        """Whom it is for."""
        return self.form.reader

    @property
    def data(self) -> bytes:
        """What its hash is of."""
        return bytes_of(self.context, self.body)


class ReadSources(Protocol):
    """What reads the sources of a context: `sources_of`, or what keeps them warm."""

    def __call__(self, log: Log, session_id: str, *, at_seq: int | None) -> Sources | None:
        """Those at the head, or just after a seq; None where there are none."""
        ...


def built(
    log: Log, session_id: str, wanted: Wanted, *, read: ReadSources = sources_of
) -> Built | None:
    """A context as wanted; None where there is no such session, or no event there.

    Raises:
        LineageError: it is a fork, and an ancestor is not there as it was.
        SettingsError: an unknown format, parameters that the context has already, or a
            policy for a session that is too large to be shaped anew.
    """
    sources = read(log, session_id, at_seq=wanted.at_seq)
    if sources is None:
        return None
    context, shaped = build(sources), sources
    known = wanted.form.model and context.shaped.policy
    last = None if known else last_asked(log, session_id, context.upto_seq)
    form = _for_last_model(wanted.form, last)
    if wanted.policy is not None:
        whole = whole_history(log, session_id, context.upto_seq)
        context, shaped = shaped_by(wanted.policy, whole, form.reader)
    body = body_of(context, form, read_blob=log.blobs.get)
    policy = wanted.policy or _policy_of(context, last)
    return Built(context, sources, shaped, form, body, policy)


def policy_wanted(name: str, budget_tokens: int | None) -> ContextPolicy | None:
    """The policy of a name, within a budget; None where neither is given.

    Raises:
        SettingsError: no such policy, or no such budget.
    """
    if not name and budget_tokens is None:
        return None
    policy = policy_named(name or DEFAULT.name)
    return policy if budget_tokens is None else policy.within(budget_tokens)


def _policy_of(context: Context, last: Asked | None) -> ContextPolicy | None:
    """The policy of the last calls, where it has a name here.

    Just behind a compaction it is that of the last call before.
    """
    request = last.started.request if last and last.started else None
    before = request.policy if isinstance(request, RequestRef) else ""
    return POLICIES.get(context.shaped.policy or before)


def _for_last_model(form: Form, last: Asked | None) -> Form:
    """A form for the model that was last asked, where it names none."""
    if form.model or last is None:
        return form
    return replace(form, model=last.model, provider=form.provider or last.provider)


def context_view(found: Built, counter: TokenCounter | None = None) -> dict[str, Any]:
    """A context; with a counter also why it is as it is."""
    context, form = found.context, found.form
    view: dict[str, Any] = {
        "format": form.format,
        "model": form.model,
        "provider": form.provider,
        "base_seq": context.base_seq,
        "upto_seq": context.upto_seq,
        "messages": len(context.messages),
        "tools": len(context.tools),
        "sha256": hashlib.sha256(found.data).hexdigest(),
    }
    if form.format:
        view["request"] = found.body
    if counter is not None:
        view["explanation"] = _explanation(found, counter)
    return view


def _explanation(found: Built, counter: TokenCounter) -> dict[str, Any]:
    events = [*found.shaped.set_up, *found.shaped.events]
    told = explain(found.context, events, counter, reader=found.reader)
    calibration = calibration_of(found.sources, counter, model=found.form.model)
    ratio = calibration.of(found.form.model)
    return {
        "counter": told.counter,
        "tokens": sizes_view(told.sizes),
        "policy": "" if found.policy is None else found.policy.name,
        "budgets": {} if found.policy is None else found.policy.budgets,
        "provider_tokens": calibration.tokens(told.sizes.total, model=found.form.model),
        "provider_ratio": round(ratio.ratio, 4),
        "provider_unseen": ratio.unseen,
        "provider_calls": ratio.samples,
        "messages": [message_view(message) for message in told.messages],
        "left_out": [plain(left) for left in told.left_out],
        "texts_gone": [sha256.hex() for sha256 in texts_gone(found.sources)],
    }


def calibration_of(
    sources: Sources,
    counter: TokenCounter,
    *,
    model: str,
    last: int = CALIBRATED_CALLS,
) -> Calibration:
    """How a model's provider counts, by its last calls of these events.

    Each of their contexts is built and counted again: a turn that counts as it goes has
    them already, and calls `calibrate` with those.
    """
    calls = [call for call in main_calls(sources.events) if call.model == model]
    calls = [call for call in calls if call.usage and call.upto_seq > sources.base_seq]
    counted: dict[str, int] = {}
    for call in calls[-last:]:
        seen = [r for r in sources.events if r.seq <= call.upto_seq]
        context = build(replace(sources, events=seen))
        reader = Reader(call.provider, call.model)
        counted[call.model_call_id] = context_tokens(context, counter, reader=reader)
    return calibrate(samples_of(calls, counted), last=last)


def sizes_view(sizes: Sizes) -> dict[str, int]:
    """Tokens by section, of all messages together, and all of them."""
    return {"total": sizes.total, MESSAGES: sizes.messages, **sizes.as_dict()}


def message_view(message: ShownMessage) -> dict[str, Any]:
    """A message with its reason; of a long text the beginning."""
    view: dict[str, Any] = plain(message)
    if len(message.text) > TEXT_SHOWN_CHARS:
        view["text"] = message.text[:TEXT_SHOWN_CHARS] + "…"
    return view


# --- two contexts ----------------------------------------------------------------------


def last_two_calls(log: Log, session_id: str, at_seq: int | None) -> list[int]:
    """The seqs up to which the last two model calls saw their session; fewer for fewer.

    Args:
        log: where the session is.
        session_id: which.
        at_seq: calls that began later do not count.
    """
    return [call.upto_seq for call in last_calls(log, session_id, 2, at_seq=at_seq)]


def difference_view(
    before: Built,
    after: Built,
    counter: TokenCounter,
    *,
    read_blob: Callable[[bytes], bytes],
) -> dict[str, Any]:
    """What the later of two contexts shares with the earlier one, and what is new."""
    events = [*before.shaped.set_up, *before.shaped.events]
    events += [*after.shaped.set_up, *after.shaped.events]
    found = difference(
        before.context,
        after.context,
        counter,
        events=events,
        reader=after.reader,
        as_bytes=partial(_bytes_in, after.form, read_blob),
    )
    view: dict[str, Any] = plain(found)
    for name, messages in (("dropped", found.dropped), ("new", found.new)):
        view[name] = [message_view(message) for message in messages]
    return {"format": after.form.format, "only_grew": found.only_grew} | view


def _bytes_in(form: Form, read_blob: Callable[[bytes], bytes], context: Context) -> bytes:
    return bytes_of(context, body_of(context, form, read_blob=read_blob))


# --- requests --------------------------------------------------------------------------


def request_view(found: Rebuilt) -> dict[str, Any]:
    """A rebuilt request: whether it is what was sent, and what it says."""
    reference = None if found.request is None else plain(found.request)["request_ref"]
    return {
        "model_call_id": found.model_call_id,
        "ok": found.ok,
        "problems": list(found.problems),
        "sha256": hashlib.sha256(found.data).hexdigest() if found.data else None,
        "recorded_sha256": found.sha256.hex() or None,
        "bytes": len(found.data),
        "reference": reference,
        "request": _parsed(found.data),
    }


def _parsed(data: bytes) -> Any:
    """A request as JSON; None where there is none, or it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None
