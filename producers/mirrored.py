"""A session that mirrors what another harness did: facts, in batches, each once."""

import asyncio
from collections.abc import Sequence

from foldline.producers.appender import raise_refused
from foldline.producers.prepare import Draft
from foldline.producers.session import SessionView
from foldline.schemas.envelope import Envelope
from foldline.schemas.events import KnownEvent
from foldline.schemas.verdicts import Verdict


class MirroredSession(SessionView):
    """Records facts. Nothing is refused for being odd: what is odd is named.

    The ids of the facts follow from their source, so that the same fact again is a
    DUPLICATE; `event_ids` says what is there already.
    """

    async def event_ids(self) -> set[str]:
        """The ids of all that is recorded."""
        log = self._link.log
        return set(await self._link.read(lambda: list(log.event_ids(self.session_id))))

    async def record(self, facts: Sequence[tuple[Envelope, KnownEvent]]) -> list[Verdict]:
        """Record facts in their order. The envelope's session and writer are set here.

        Raises:
            AppendRefusedError: a fact that is malformed or too large.
        """
        drafts = [Draft(self._ours(envelope), event) for envelope, event in facts]
        answers = await asyncio.shield(self._appender.submit(drafts))
        raise_refused(answers)
        return [sent.verdict for sent in answers]

    def _ours(self, envelope: Envelope) -> Envelope:
        ours = {
            "session_id": self.session_id,
            "writer": self._link.writer,
            "tenant": self._link.tenant,
            "epoch": 0,
        }
        return envelope.model_copy(update=ours)
