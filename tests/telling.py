"""A session told step by step, at random: whatever may happen between its events."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from hypothesis import strategies as st

from foldline.processors.clock import wall_clock
from foldline.processors.memory_log import MemoryLog
from foldline.projections.forking import fork_point
from foldline.schemas.blocks import Blob, Block, Blocks, json_block, text_block
from foldline.schemas.events import (
    AssistantMessage,
    BackgroundEnded,
    CompactionCompleted,
    ConstraintLifted,
    ConstraintSet,
    ContextCleared,
    ContextPruned,
    GoalSet,
    HistoryRewound,
    InstructionsSet,
    KnownEvent,
    MessageRetracted,
    PlanItem,
    PlanUpdated,
    SteeringApplied,
    SteeringExpired,
    SteeringReceived,
    SummaryCreated,
    ToolBackgrounded,
    ToolDeclaration,
    ToolExecutionCompleted,
    ToolExecutionFailed,
    ToolResultProjected,
    ToolsDeclared,
    UserMessage,
)
from foldline.settings import Settings
from foldline.testing import LogStory
from foldline.testing.log_story import new_id
from foldline.testing.samples import created, said, started
from tests.happenings import ask, deny, expired, grant, request, start

NAMES = ("k", "l")


def words(text: str) -> Blocks:
    """One text block."""
    return (text_block(text),)


@dataclass
class Teller:
    """Tells a session step by step; each number says something that fits.

    What admission refuses did not happen.
    """

    log: MemoryLog
    story: LogStory
    numbers: Callable[[int], int]
    calls: list[str] = field(default_factory=list[str])
    messages: list[str] = field(default_factory=list[str])
    steering: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    waiting: list[str] = field(default_factory=list[str])

    def tell(self, *events: KnownEvent) -> None:
        """Append what admission may refuse."""
        for event in events:
            self.story.when(event)

    def one_of(self, names: list[str]) -> str:
        """One of these; one that is none where there are none."""
        return names[self.numbers(len(names))] if names else "none"

    def cut(self) -> int:
        """A seq to compact up to, or to rewind to."""
        return max(self.story.seq - self.numbers(9), 1)

    # --- what is said ----------------------------------------------------------------

    def say(self) -> None:
        message = UserMessage(message_id=new_id(), blocks=words("words"))
        self.tell(message)
        self.messages.append(message.message_id)

    def say_much(self) -> None:
        sha256 = self.log.blobs.put(f"a long text {self.numbers(3)}".encode())
        blob = Blob(sha256=sha256, size=13, media_type="text/plain", preview="a long")
        block = Block(kind="text", media_type="text/plain", body=blob)
        self.tell(UserMessage(message_id=new_id(), blocks=(block,)))

    def say_instead(self) -> None:
        replaced = self.one_of(self.messages)
        message_id = (replaced, new_id())[self.numbers(2)]
        blocks = words("other words")
        self.tell(UserMessage(message_id=message_id, replaces=replaced, blocks=blocks))

    def retract(self) -> None:
        gone = self.one_of([*self.messages, *self.unfinished])
        self.tell(MessageRetracted(message_ids=(gone,)))

    # --- the model and its calls -------------------------------------------------------

    def ask(self) -> None:
        message_id, count = new_id(), 1 + self.numbers(2)
        call_ids = [new_id() for _ in range(count)]
        blocks = tuple(Block(kind="tool_call", call_id=call_id) for call_id in call_ids)
        self.tell(AssistantMessage(message_id=message_id, final=True, blocks=blocks))
        for call_id in call_ids:
            self.request(call_id, message_id)
        self.unfinished.append(message_id)

    def ask_more(self) -> None:
        """One more part, or one more call, of a message that was told in parts."""
        message_id = self.one_of(self.unfinished)
        if self.numbers(2):
            part = AssistantMessage(message_id=message_id, part=1, blocks=words("and"))
            self.tell(part)
        else:
            self.request(new_id(), message_id)

    def request(self, call_id: str, message_id: str) -> None:
        arguments = (json_block("{}"),)
        asked = request(
            call_id,
            message_id=message_id,
            arguments=arguments,
            provider_call_id=NAMES[self.numbers(2)],
        )
        self.tell(asked)
        if self.numbers(4):
            self.tell(start(call_id, effect="IDEMPOTENT"))
        self.calls.append(call_id)

    def answer(self) -> None:
        call_id, output = self.one_of(self.calls), words("output")
        self.tell(ToolExecutionCompleted(call_id=call_id, output=output))

    def fail(self) -> None:
        """It fails, and may be begun once more, at once or later."""
        call_id = self.one_of(self.calls)
        failed = ToolExecutionFailed(
            call_id=call_id, layer="TOOL", error_type="E", executed="NO"
        )
        self.tell(failed)
        self.failed.append(call_id)
        if self.numbers(2):
            self.retry()

    def retry(self) -> None:
        call_id = self.one_of(self.failed)
        self.tell(start(call_id, 2, effect="IDEMPOTENT"))
        if self.numbers(2):
            done = ToolExecutionCompleted(call_id=call_id, attempt=2, output=words("2nd"))
            self.tell(done)

    def freeze(self) -> None:
        call_id = self.one_of(self.calls)
        shown = words("not known yet")
        self.tell(ToolResultProjected(call_id=call_id, form="UNKNOWN", blocks=shown))

    def go_on_behind(self) -> None:
        call_id = self.one_of(self.calls)
        handle = f"h{call_id}"
        self.tell(ToolBackgrounded(call_id=call_id, handle=handle))
        if self.numbers(2):
            ended = BackgroundEnded(
                handle=handle, outcome="COMPLETED", output=words("at last")
            )
            self.tell(ended)

    def permit(self) -> None:
        """A call waits for a person, who may answer at once."""
        call_id, message_id = new_id(), self.one_of([*self.unfinished, new_id()])
        asked = request(call_id, message_id=message_id, arguments=(json_block("{}"),))
        self.tell(asked, ask(f"r{call_id}", call_id))
        self.calls.append(call_id)
        self.waiting.append(call_id)
        if self.numbers(2):
            self.decide()

    def decide(self) -> None:
        """A person answers, by the call or by the request only, or nobody does."""
        call_id = self.one_of(self.waiting)
        again, named = bool(self.numbers(2)), (call_id, None)[self.numbers(2)]
        answers = (
            grant(f"r{call_id}", call_id),
            deny(f"r{call_id}", call_id=named, may_request_again=again),
            deny(f"r{call_id}", call_id=named),
        )
        chosen = self.numbers(len(answers) + 1)
        for answer in answers[chosen:][:1]:
            self.story.when(answer, writer="person", epoch=0)
        if chosen == len(answers):
            self.tell(expired(f"r{call_id}"))

    def aside(self) -> None:
        """On a branch: said to another model, whatever is done to that one's context."""
        told = words("aside")
        events: tuple[KnownEvent, ...] = (
            UserMessage(message_id=new_id(), blocks=told),
            AssistantMessage(message_id=new_id(), final=True, blocks=told),
            ContextCleared(),
            self.compaction(),
            self.compaction(),
            HistoryRewound(to_seq=self.cut()),
            GoalSet(blocks=told),
            SteeringReceived(blocks=told),
        )
        append = self.story.append(events[self.numbers(len(events))])
        envelope = append.envelope.model_copy(update={"branch": "aside"})
        self.story.send([append._replace(envelope=envelope)])

    # --- what is in force ----------------------------------------------------------------

    def set_up(self) -> None:
        said, name = words(f"goal {self.numbers(3)}"), NAMES[self.numbers(2)]
        tool = ToolDeclaration(name=name, effect="READ_ONLY")
        events: tuple[KnownEvent, ...] = (
            GoalSet(blocks=said),
            InstructionsSet(role="system", blocks=said),
            ConstraintSet(constraint_id=name, blocks=said),
            ConstraintSet(constraint_id=name, blocks=said),
            ConstraintLifted(constraint_id=name),
            PlanUpdated(items=(PlanItem(item_id=name, status="PENDING", blocks=said),)),
            ToolsDeclared(tools=(tool,)),
        )
        self.tell(events[self.numbers(len(events))])

    def steer(self) -> None:
        self.tell(SteeringReceived(blocks=words("use nix")))
        self.steering.append(list(self.log.event_ids(self.story.session_id))[-1])

    def apply(self) -> None:
        self.tell(SteeringApplied(steering_event_id=self.one_of(self.steering)))

    def expire(self) -> None:
        expired = SteeringExpired(steering_event_id=self.one_of(self.steering), reason="r")
        self.tell(expired)

    # --- what is done to the context -----------------------------------------------------

    def compact(self) -> None:
        self.tell(self.compaction())

    def compaction(self) -> CompactionCompleted:
        """One that begins and ends anywhere."""
        ids = list(self.log.event_ids(self.story.session_id))
        first = (1, 1, 1, self.story.state.cleared_seq + 1, self.cut())
        return CompactionCompleted(
            compaction_id=new_id(),
            from_seq=first[self.numbers(len(first))],
            to_seq=self.cut(),
            base_seq=self.story.seq,
            strategy="s",
            kept=() if self.numbers(5) else (self.one_of(ids),),
            blocks=words("so far"),
        )

    def summarise(self) -> None:
        self.tell(SummaryCreated(from_seq=1, to_seq=self.cut(), blocks=words("imported")))

    def prune(self) -> None:
        names = (self.one_of(self.calls), *NAMES)
        self.tell(ContextPruned(targets=(names[self.numbers(3)],), rule="r"))

    def clear(self) -> None:
        self.tell(ContextCleared())

    def rewind(self) -> None:
        self.tell(HistoryRewound(to_seq=max(self.cut() - self.numbers(4), 0)))

    def fork(self) -> None:
        """Go on in a fork of the history."""
        name = self.story.session_id
        point = fork_point(self.log, name, self.cut(), tenant="default", agent="b")
        child = LogStory(self.log)
        append = child.append(point.created, known_seq=0)
        envelope = append.envelope.model_copy(update={"prev_hash": point.prev_hash})
        child.send([append._replace(envelope=envelope)]).then("ACCEPTED")
        self.story = child
        self.tell(started())


STEPS = st.sampled_from(
    (
        *("say", "ask", "compact", "clear", "rewind", "rewind", "answer", "set_up") * 2,
        "aside",
        "aside",
        "say_much",
        "say_instead",
        "retract",
        "ask_more",
        "fail",
        "retry",
        "freeze",
        "go_on_behind",
        "permit",
        "decide",
        "steer",
        "apply",
        "expire",
        "summarise",
        "prune",
        "fork",
    )
)


@contextmanager
def telling(
    data: st.DataObject, *, steps_min: int = 0, steps_max: int = 14
) -> Generator[tuple[Teller, list[str]]]:
    """Who tells a session in a log of its own, and the steps to tell."""

    def numbers(below: int) -> int:
        return data.draw(st.integers(0, max(below - 1, 0)))

    with closing(MemoryLog(settings=Settings(), clock=wall_clock)) as log:
        story = LogStory(log).given(created(), started(), said())
        steps = st.lists(STEPS, min_size=steps_min, max_size=steps_max)
        yield Teller(log, story, numbers), data.draw(steps)
