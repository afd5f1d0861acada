"""Made-up secrets of every prefixed kind, and the encodings and places they are met in.

Nothing here is a secret, and no line of this file looks like one to a scanner: each is
put together from chance with a fixed seed when a test asks.
"""

import base64
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

LETTERS = string.ascii_letters + string.digits
LOWER_HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
EACH = 5
"""How many secrets of a kind there are."""

Encode = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Planted:
    """A secret, and a text that holds it in some encoding."""

    kind: str
    secret: str
    way: str
    text: str
    encoded: str


# What stands before chance, of which alphabet that is, and how long.
_PREFIXED: tuple[tuple[str, tuple[str, ...], str, int], ...] = (
    ("anthropic", ("sk-", "ant-", "api03-"), LETTERS + "-_", 90),
    ("aws-id", ("AK", "IA"), UPPER, 16),
    ("aws-temporary", ("AS", "IA"), UPPER, 16),
    ("age", ("AGE-SECRET", "-KEY-1"), UPPER, 58),
    ("atlassian", ("ATATT", "3xFf"), LETTERS, 60),
    ("databricks", ("da", "pi"), LOWER_HEX, 32),
    ("digitalocean", ("dop", "_v1_"), LOWER_HEX, 64),
    ("docker", ("dckr", "_pat_"), LETTERS, 27),
    ("doppler", ("dp", ".pt."), LETTERS, 43),
    ("github", ("gh", "p_"), LETTERS, 36),
    ("github-app", ("gh", "s_"), LETTERS, 36),
    ("github-fine", ("github", "_pat_"), LETTERS, 82),
    ("gitlab", ("gl", "pat-"), LETTERS, 20),
    ("google-api", ("AI", "za"), LETTERS, 35),
    ("google-client", ("GOC", "SPX-"), LETTERS, 28),
    ("google-oauth", ("ya", "29."), LETTERS, 80),
    ("grafana", ("gl", "sa_"), LETTERS, 41),
    ("groq", ("gs", "k_"), LETTERS, 52),
    ("huggingface", ("h", "f_"), LETTERS, 34),
    ("linear", ("lin", "_api_"), LETTERS, 40),
    ("mailgun", ("ke", "y-"), LOWER_HEX, 32),
    ("newrelic", ("NR", "AK-"), UPPER, 27),
    ("notion", ("nt", "n_"), LETTERS, 46),
    ("npm", ("np", "m_"), LETTERS, 36),
    ("openai", ("s", "k-"), LETTERS, 48),
    ("openai-project", ("sk-", "proj-"), LETTERS, 80),
    ("pinecone", ("pc", "sk_"), LETTERS, 60),
    ("planetscale", ("pscale", "_tkn_"), LETTERS, 43),
    ("postman", ("PM", "AK-"), LOWER_HEX, 58),
    ("pypi", ("pypi", "-AgE"), LETTERS, 150),
    ("replicate", ("r", "8_"), LETTERS, 37),
    ("rubygems", ("ruby", "gems_"), LOWER_HEX, 48),
    ("sentry", ("sn", "trys_"), LETTERS, 80),
    ("shopify", ("sh", "pat_"), LOWER_HEX, 32),
    ("slack-bot", ("xo", "xb-"), LETTERS, 50),
    ("slack-user", ("xo", "xp-"), LETTERS, 70),
    ("stripe-live", ("sk", "_live_"), LETTERS, 24),
    ("stripe-restricted", ("rk", "_live_"), LETTERS, 24),
    ("tavily", ("tv", "ly-"), LETTERS, 32),
    ("twilio", ("S", "K"), LOWER_HEX, 32),
    ("vault", ("hv", "s."), LETTERS, 90),
    ("xai", ("xa", "i-"), LETTERS, 80),
)


def _parts(rng: random.Random, *parts: str, alphabet: str, length: int) -> str:
    return "".join(parts) + "".join(rng.choices(alphabet, k=length))


def _jwt(rng: random.Random) -> str:
    head = json.dumps({"alg": "HS256", "typ": "JWT"})
    body = json.dumps({"sub": str(rng.randrange(10**9)), "admin": True})
    coded = [
        base64.urlsafe_b64encode(t.encode()).decode().rstrip("=") for t in (head, body)
    ]
    return ".".join([*coded, _parts(rng, alphabet=LETTERS, length=43)])


def _discord(rng: random.Random) -> str:
    who = base64.b64encode(str(rng.randrange(10**17, 10**18)).encode()).decode()
    rest = (_parts(rng, alphabet=LETTERS, length=n) for n in (6, 38))
    return ".".join([who.rstrip("="), *rest])


def _sendgrid(rng: random.Random) -> str:
    rest = (_parts(rng, alphabet=LETTERS, length=n) for n in (22, 43))
    return ".".join(["S" + "G", *rest])


def _telegram(rng: random.Random) -> str:
    return f"{rng.randrange(10**9, 10**10)}:A" + _parts(
        rng, "A", alphabet=LETTERS, length=33
    )


def _slack_webhook(rng: random.Random) -> str:
    path = _parts(rng, "T0/B0/", alphabet=LETTERS, length=24)
    return "https://hooks.slack." + "com/services/" + path


def _pem(rng: random.Random) -> str:
    lines = [_parts(rng, alphabet=LETTERS + "+/", length=64) for _ in range(6)]
    edge = "RSA PRIVATE" + " KEY"
    return "\n".join([f"-----BEGIN {edge}-----", *lines, f"-----END {edge}-----"])


_SHAPED: tuple[tuple[str, Callable[[random.Random], str]], ...] = (
    ("discord", _discord),
    ("jwt", _jwt),
    ("pem", _pem),
    ("sendgrid", _sendgrid),
    ("slack-webhook", _slack_webhook),
    ("telegram", _telegram),
)


def secrets(seed: int = 7) -> list[tuple[str, str]]:
    """The kind and the text of each secret."""
    rng = random.Random(seed)
    made: list[tuple[str, str]] = []
    for kind, parts, alphabet, length in _PREFIXED:
        for _ in range(EACH):
            chance = _parts(rng, alphabet=alphabet, length=length - 2)
            # A digit and a capital, as all but one in a million have.
            made.append(
                (kind, "".join(parts) + chance + ("7F" if "F" in alphabet else "7f"))
            )
    for kind, make in _SHAPED:
        made.extend((kind, make(rng)) for _ in range(EACH))
    return made


# --- encodings -----------------------------------------------------------------------


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def in_percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def in_unicode_escapes(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


def in_utf16(text: str) -> str:
    return text.encode("utf-16-le").decode("ascii")


def in_utf16_base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-16-le")).decode()


def wrapped(text: str, width: int = 24) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


def coloured(text: str) -> str:
    """With a terminal's escape sequence in the middle of it."""
    middle = len(text) // 2
    return f"{text[:middle]}\x1b[0m\x1b[31m{text[middle:]}"


def _same(text: str) -> str:
    return text


def _chain(*encodings: Encode) -> Encode:
    def encode(text: str) -> str:
        for encoding in encodings:
            text = encoding(text)
        return text

    return encode


ENCODINGS: dict[str, Encode] = {
    "plain": _same,
    "json": in_json,
    "json in json": _chain(in_json, in_json),
    "unicode escapes": in_unicode_escapes,
    "unicode escapes in json": _chain(in_unicode_escapes, in_json),
    "url": lambda text: quote(text, safe=""),
    "percent": in_percent,
    "percent in percent": _chain(in_percent, lambda text: quote(text, safe="")),
    "base64": in_base64,
    "base64 in base64": _chain(in_base64, in_base64),
    "base64 in percent": _chain(in_base64, lambda text: quote(text, safe="")),
    "percent in base64": _chain(in_percent, in_base64),
    "url-safe base64": lambda text: in_base64(text).translate(str.maketrans("+/", "-_")),
    "base64, wrapped": _chain(in_base64, lambda text: wrapped(text, 76)),
    "hex": lambda text: text.encode().hex(),
    "utf-16": in_utf16,
    "utf-16 in base64": in_utf16_base64,
    "terminal": coloured,
}
"""How a secret is written."""

PLACES: dict[str, str] = {
    "alone": "{}",
    "prose": "I found {} in the output, please rotate it.",
    "json": '{{"result": "{}", "n": 1}}',
    "log": '2026-01-02T03:04:05Z INFO worker-3 sent value="{}" status=200',
    "query": "GET /v1/items?page=2&x={}&sort=up HTTP/1.1",
    "env": "PATH=/usr/bin\nTHING={}\nHOME=/home/somebody",
    "diff": "@@ -1 +1 @@\n-thing = old\n+thing = {}",
    "traceback": '  File "/app/x.py", line 3, in f\n    call("{}")\nValueError: {}',
    "yaml": "thing:\n  value: {}\n  other: 1",
    "html": '<input value="{}" type="hidden"/>',
    "markdown": "Use `{}` as the *thing*.",
    "header": "> x-thing: {}\n> accept: */*",
}
"""Where it is written."""


def planted() -> list[Planted]:
    """Every secret in every encoding, each in a place of its turn."""
    places = list(PLACES.items())
    found: list[Planted] = []
    turn = 0
    for kind, secret in secrets():
        for way, encode in ENCODINGS.items():
            place, around = places[turn % len(places)]
            turn += 1
            encoded = encode(secret)
            text = around.replace("{{", "{").replace("}}", "}").replace("{}", encoded)
            found.append(Planted(kind, secret, f"{way}, {place}", text, encoded))
    return found


def leaks(said: str, planted: Planted) -> bool:
    """Whether a good part of a secret's second half is still there, as it was written."""
    code = planted.encoded
    size = max(12, len(code) // 4)
    starts = range(len(code) // 2, max(len(code) - size, len(code) // 2) + 1, 4)
    return planted.secret in said or any(code[at : at + size] in said for at in starts)
