"""What values and names give away: whether a value can be a secret, a name say so.

Code and prose are full of words like `password` and `token`; what stands after them is
mostly a word, a path, an id, or where the secret is to be found.
"""

import math
import re
from functools import lru_cache

ENTROPY_MIN = 2.8
"""Bits per character below which a value after a name is taken for a word."""

CERTAIN_ENTROPY_MIN = 2.0
"""The same after a name that can hardly stand for anything but a secret."""

VALUE_MIN = 6
"""Shorter values, in characters, are taken for words where only a name tells."""

JUDGED_MAX = 128
"""How much of a value, in characters, is looked at to tell whether it is a secret."""


# --- what is no secret although its name says so -------------------------------------

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX_HASH = re.compile(r"(?:sha(?:1|256|512)[:-])?(?:[0-9a-f]{7,40}|[0-9a-f]{64})")
_REFERENCE = re.compile(
    r"\$\w|\$\{|\$\(|%\w+%|\{\{|\{\w*\}|<[\w .:-]{1,60}>|@\w+|process\.env|os\.environ"
    r"|env\.|secrets?\.|vault:|op://|arn:|file:|https?:",
    re.IGNORECASE,
)
PATH = re.compile(r"(?:~|\.{1,2})?/[\w.@ -]{1,80}(?:/|\.\w{1,8}$|$)|[A-Za-z]:\\\w")
_STOP_WORDS = (
    *("your", "example", "changeme", "change-me", "change_me", "placeholder", "dummy"),
    *("redacted", "xxxx", "***", "...", "sample", "notset", "not-set", "not_set"),
    *("undefined", "insert", "replace", "foobar", "lorem"),
)
_STOPS = re.compile("|".join(map(re.escape, _STOP_WORDS)))
_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"[A-Za-z]{1,24}(?:[-_.][A-Za-z]{1,24}){0,8}[:,.!?]?")
_CODE = re.compile(r"[\w.]{1,80}[(\[]|[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,6}$")
_TERM = re.compile(
    r"(?:base|sha|md|utf|argon|oauth|http|aes|rsa|ed|hmac|pbkdf|bcrypt|scrypt|v|rfc|iso|x)"
    r"[-_]?\d[\w.-]{0,40}|[a-z]{1,24}(?:-[a-z0-9]{1,24}){1,6}|\d{1,9}[-_.a-z%]{0,24}"
    r"|[\w-]{1,80}(?:\.[A-Za-z][\w-]{0,40}){1,6}",
    re.IGNORECASE,
)
_EMPTY = frozenset(
    {
        *("null", "none", "nil", "true", "false", "undefined", "yes", "no", "on", "off"),
        *("string", "str", "bytes", "int", "number", "bool", "optional", "any", "object"),
        *("required", "missing", "hidden", "test"),
    }
)


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    counts = [text.count(letter) for letter in set(text)]
    length = len(text)
    return math.log2(length) - sum(n * math.log2(n) for n in counts if n > 1) / length


def is_reference(value: str) -> bool:
    """Whether a value only says where the secret is, or that one belongs here."""
    begin = value[:JUDGED_MAX].lower()
    return (
        begin in _EMPTY
        or _STOPS.search(begin) is not None
        or _REFERENCE.match(begin) is not None
    )


def is_term(value: str) -> bool:
    """Whether a sentence that says `the token is ...` more likely goes on with a term."""
    return _TERM.fullmatch(value[:JUDGED_MAX].rstrip(".!?*")) is not None


def looks_secret(value: str, *, certain: bool = False) -> bool:
    """Whether a value that stands after a telling name is a secret and not a word.

    Unless the name is certain, UUIDs and hashes are let through: they are ids, and
    replacing ids breaks what refers to them.
    """
    value = value[:JUDGED_MAX]
    floor = CERTAIN_ENTROPY_MIN if certain else ENTROPY_MIN
    if len(value) < VALUE_MIN or math.log2(len(set(value))) < floor:
        return False
    if is_reference(value):
        return False
    if not certain and (_UUID.fullmatch(value) or _HEX_HASH.fullmatch(value)):
        return False
    if _WORDS.fullmatch(value) or _CODE.match(value) or PATH.match(value):
        return False
    return not value.isdigit() and entropy(value) >= floor


def is_mixed(value: str) -> bool:
    """Whether a token of a short prefix has letters and digits, and no pattern in them."""
    value = value[:JUDGED_MAX]
    if math.log2(len(set(value))) < ENTROPY_MIN:
        return False
    return _DIGIT.search(value) is not None and entropy(value) >= ENTROPY_MIN


# --- names -----------------------------------------------------------------------

NAME_WORDS = (
    r"passwords?|passwd|passphrase|passcode|secrets?|tokens?|api[_-]?keys?|access[_-]?keys?"
    r"|private[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|encryption[_-]?keys?"
    r"|signing[_-]?keys?|auth[_-]?keys?|credentials?|authorization|cookies?"
    r"|connection[_-]?strings?|client[_-]?key[_-]?data|webhook[_-]?urls?|_auth"
)
_SECRET_NAME = re.compile(rf"(?:^|[^a-z])(?:{NAME_WORDS}|pwd|pass|auth|dsn)$")
_CERTAIN_NAME = re.compile(
    r"(?:passwords?|passwd|passphrase|secrets?|api[_-]?keys?|private[_-]?keys?"
    r"|access[_-]?keys?|secret[_-]?keys?|authorization|cookies?|(?:access|refresh|auth"
    r"|session|bearer|api|id|bot)[_-]?tokens?)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
NAME_MAX = 100
"""Longer keys, in characters, are no names."""


@lru_cache(maxsize=4096)
def name_says_secret(name: str) -> bool:
    """Whether the name of a field, header or variable says that its value is secret."""
    return len(name) <= NAME_MAX and _SECRET_NAME.search(_words(name)) is not None


def secret_by_name(name: str, value: str) -> bool:
    """Whether a value is to be replaced because of its name.

    After a name that leaves no doubt everything is, except what only refers to a
    secret; after one that may mean something else (`token`) what looks like one is.
    """
    if not value or not name_says_secret(name) or is_reference(value):
        return False
    return is_certain(name) or looks_secret(value)


@lru_cache(maxsize=4096)
def is_certain(name: str) -> bool:
    """Whether a name can hardly stand for anything but a secret."""
    variable = name.isupper() and name.endswith("_TOKEN")
    return variable or _CERTAIN_NAME.search(_words(name)) is not None


def _words(name: str) -> str:
    return _CAMEL.sub("_", name).lower().lstrip("-")
