"""Redaction: recall on a corpus, false findings on clean text, cost by the worst texts.

    python benchmarks/redaction.py [--quick] [--json]

The corpus is made up (tests/secret_corpus.py). Clean text is the standard library's, this
project's own, and lines as servers and package managers log them. Cost is processor time
per KiB, the best of several, of ordinary text and of texts that are made of nothing but
secrets, escapes, or what rules look for. Recall and false findings are the same on every
machine, so to miss one of them is exit code 1; cost is not.
"""

import json
import random
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import finish, options, say, target

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from foldline.producers.redaction import Redactor  # noqa: E402
from foldline.producers.redaction_rules import DEFAULT_RULES  # noqa: E402
from tests.clean_corpus import logs  # noqa: E402
from tests.secret_corpus import (  # noqa: E402
    in_base64,
    in_percent,
    in_unicode_escapes,
    leaks,
    planted,
    secrets,
)

COST_TARGET_MS = 1.0
RECALL_TARGET = 0.99
FALSE_TARGET = 1.0
KIB = 1024
TEXT_CHARS = 20_000
ROUNDS = 5
RNG = random.Random(5)


def chance(length: int) -> str:
    """A token of so many letters and digits."""
    return "".join(RNG.choices(string.ascii_letters + string.digits, k=length))


def recall(redactor: Redactor, step: int) -> dict[str, float]:
    """The share of the corpus of which nothing is left; of every so many of it."""
    corpus = planted()[::step]
    missed = Counter(
        one.kind for one in corpus if leaks(redactor.redact_text(one.text)[0], one)
    )
    share = 1 - missed.total() / len(corpus)
    return {"planted": len(corpus), "secrets": len(secrets()), "recall": share}


def sources(*, quick: bool) -> Iterator[str]:
    """Text without secrets: logs, the standard library's sources and our own."""
    yield logs()
    library = Path(string.__file__).parent
    found = [
        path
        for path in sorted(library.rglob("*.py"))
        if not {"site-packages", "test", "tests", "idle_test"} & set(path.parts)
    ]
    for folder in ("producers", "processors", "projections", "schemas", "docs"):
        found += sorted((ROOT / folder).rglob("*.[pm][yd]"))
    for path in found[:: 10 if quick else 1]:
        yield path.read_text(errors="replace")


def clean(redactor: Redactor, *, quick: bool) -> dict[str, object]:
    """What is found where nothing is, and what ordinary text costs."""
    found: Counter[str] = Counter()
    chars = 0
    began = time.process_time()
    for text in sources(quick=quick):
        chars += len(text)
        found.update(redactor.redact_text(text)[1])
    # The examples of cookies in http/cookies.py are what the rule is for.
    del found["cookie"]
    cost = (time.process_time() - began) * 1000 / (chars / KIB)
    per_mb = found.total() / (chars / 1e6)
    return {"mb": chars / 1e6, "per_mb": per_mb, "found": dict(found), "ms_per_kib": cost}


def dense() -> dict[str, Callable[[], str]]:
    """The worst texts: nothing but secrets, plain and encoded, or nothing but escapes."""

    def named(count: int) -> str:
        return "".join(f"password: {chance(9)}\n" for _ in range(count))

    return {
        "passwords": lambda: named(1_000),
        "vendors' tokens": lambda: "\n".join(secret for _, secret in secrets()),
        "URLs with passwords": lambda: "".join(
            f"http://u:{chance(6)}@h/ " for _ in range(1_000)
        ),
        "JSON of passwords": lambda: json.dumps(
            [{"password": chance(9)} for _ in range(800)]
        ),
        "passwords in percent": lambda: in_percent(named(300)),
        "passwords in \\u": lambda: in_unicode_escapes(named(200)),
        "passwords in base64": lambda: "\n".join(in_base64(named(1)) for _ in range(500)),
        "base64 thrice": lambda: in_base64(in_base64(in_base64("nothing at all " * 600))),
        "lines that break tokens": lambda: "".join(f"{chance(20)}\n" for _ in range(1_000)),
        "escapes": lambda: "\\u0041\\/%41" * 2_000,
        "backslashes": lambda: "\\" * TEXT_CHARS,
        "anchors": lambda: "".join(a for rule in DEFAULT_RULES for a in rule.anchors) * 12,
        "one anchor": lambda: "sk-" * (TEXT_CHARS // 3),
    }


def cost_ms(redactor: Redactor, text: str) -> float:
    """Processor time per KiB, the best of several."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        redactor.redact_text(text)
        best = min(best, time.process_time() - began)
    return best * 1000 / (len(text) / KIB)


def main() -> int:
    """Measure, and say what was reached; exit code 1 for a miss that no machine excuses."""
    arguments = options("Redaction").parse_args()
    quick = arguments.quick
    redactor = Redactor(b"k" * 32)
    found = recall(redactor, 10 if quick else 1)
    say(f"{found['planted']:,} planted, {found['secrets']:,} secrets")
    certain = target("recall", found["recall"], RECALL_TARGET, at_least=True)
    plain = clean(redactor, quick=quick)
    say(f"{plain['mb']:.1f} MB of clean text")
    certain &= target("false findings a MB", float(str(plain["per_mb"])), FALSE_TARGET)
    costs = {"ordinary text": float(str(plain["ms_per_kib"]))}
    costs |= {name: cost_ms(redactor, make()) for name, make in dense().items()}
    for name, cost in costs.items():
        target(f"ms a KiB, {name}", cost, COST_TARGET_MS)
    result = {"recall": found, "clean": plain, "ms_per_kib": costs}
    finish(arguments, {"benchmark": "redaction", **result})
    return 0 if certain else 1


if __name__ == "__main__":
    raise SystemExit(main())
