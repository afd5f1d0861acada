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

# The whole value is one, or several in a row: `$ecret!Pa55` and `@dm1n!` are none.
_REFERENCE = re.compile(
    r"(?:(?:\$(?:\d|[a-z_]\w{0,80}(?:[.:]\w{1,80}){0,4}+)|%\w{1,80}%|@\w{1,80}"
    r"|\{[\w.!:-]{0,80}\}|<[\w .:-]{1,60}>)[/:.,;@)\]-]{0,2}+){1,8}$"
    r"|(?:process\.env|os\.environ|(?:env|secrets?)(?=\.))(?:\.[\w.]{0,80}+)?(?:[(\[]|[!?]?$)"
    r"|\$\{|\$\(|\{\{|vault:|op://|arn:|file:|https?:",
    re.IGNORECASE,
)
_WEBHOOK = re.compile(r"https?://[^/\s]{1,200}/")
_TOKEN_IN_PATH = re.compile(r"[A-Za-z0-9_-]{16,200}+")
PATH = re.compile(r"(?:~|\.{1,2})?/[\w.@ -]{1,80}(?:/|\.\w{1,8}$|$)|[A-Za-z]:\\\w")
_STOP_WORDS = (
    *("your", "example", "changeme", "change-me", "change_me", "placeholder", "dummy"),
    *("redacted", "xxxx", "***", "...", "sample", "notset", "not-set", "not_set"),
    *("undefined", "insert", "replace", "foobar", "lorem"),
)
_STOPS = re.compile("|".join(map(re.escape, _STOP_WORDS)))
_WORDS_ALONE = re.compile(r"[a-z_.*<>\[\]{} -]{1,128}")
_DIGIT = re.compile(r"\d")

# Words, code, a path, a number.
_NO_SECRET = re.compile(
    r"[A-Za-z]{1,24}(?:[-_.][A-Za-z]{1,24}){0,8}[:,.!?]?\Z"
    r"|[\w.]{1,80}[(\[]|[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,6}$"
    rf"|{PATH.pattern}|\d{{1,{JUDGED_MAX}}}\Z"
)
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


_BITS = tuple(n * math.log2(n) if n else 0.0 for n in range(JUDGED_MAX + 1))
"""What a letter that occurs n times takes from the bits of a text."""

_DISTINCT_MIN = math.ceil(2**ENTROPY_MIN)
_CERTAIN_DISTINCT_MIN = math.ceil(2**CERTAIN_ENTROPY_MIN)
"""The fewest different letters that can give a text so many bits per character."""


def entropy(text: str) -> float:
    """Shannon entropy in bits per character, of at most JUDGED_MAX characters."""
    text = text[:JUDGED_MAX]
    length = len(text)
    letters = set(text)
    if len(letters) == length:
        return math.log2(length)
    return math.log2(length) - sum([_BITS[text.count(one)] for one in letters]) / length


def is_reference(value: str, *, certain: bool = False) -> bool:
    """Whether a value only says where the secret is, or that one belongs here.

    After a name that leaves no doubt, `MySample#4711` is no sample: only what is made of
    words alone says so.
    """
    begin = value[:JUDGED_MAX].lower()
    if begin in _EMPTY or _REFERENCE.match(begin) is not None:
        return True
    if _STOPS.search(begin) is None:
        return False
    return not certain or _WORDS_ALONE.fullmatch(begin) is not None


def is_webhook(value: str) -> bool:
    """Whether a URL holds the token of a webhook: who has it may post."""
    url = _WEBHOOK.match(value)
    if url is None:
        return False
    return any(is_mixed(one[0]) for one in _TOKEN_IN_PATH.finditer(value, url.end()))


def is_term(value: str) -> bool:
    """Whether a sentence that says `the token is ...` more likely goes on with a term."""
    return _TERM.fullmatch(value[:JUDGED_MAX].rstrip(".!?*")) is not None


def looks_secret(value: str, *, certain: bool = False) -> bool:
    """Whether a value that stands after a telling name is a secret and not a word.

    Unless the name is certain, UUIDs and hashes are let through: they are ids, and
    replacing ids breaks what refers to them.
    """
    value = value[:JUDGED_MAX]
    fewest = _CERTAIN_DISTINCT_MIN if certain else _DISTINCT_MIN
    if len(value) < VALUE_MIN or len(set(value)) < fewest:
        return False
    if certain and value.isalnum() and not (value.isalpha() or value.isdigit()):
        return entropy(value) >= CERTAIN_ENTROPY_MIN  # no word, code, path or reference
    if _NO_SECRET.match(value) or is_reference(value, certain=certain):
        return False
    if not certain and (_UUID.fullmatch(value) or _HEX_HASH.fullmatch(value)):
        return False
    return entropy(value) >= (CERTAIN_ENTROPY_MIN if certain else ENTROPY_MIN)


def is_mixed(value: str) -> bool:
    """Whether a token of a short prefix has letters and digits, and no pattern in them."""
    value = value[:JUDGED_MAX]
    if _DIGIT.search(value) is None or len(set(value)) < _DISTINCT_MIN:
        return False
    return entropy(value) >= ENTROPY_MIN


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
_WEBHOOK_NAME = re.compile(r"webhook[_-]?urls?$")
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
    if not value or not name_says_secret(name):
        return False
    if is_webhook_name(name):
        return is_webhook(value)
    if is_certain(name):
        return not is_reference(value, certain=True)
    return looks_secret(value)


@lru_cache(maxsize=4096)
def is_webhook_name(name: str) -> bool:
    """Whether what a name says is secret is a URL."""
    return _WEBHOOK_NAME.search(_words(name)) is not None


@lru_cache(maxsize=4096)
def is_certain(name: str) -> bool:
    """Whether a name can hardly stand for anything but a secret."""
    variable = name.isupper() and name.endswith("_TOKEN")
    return variable or _CERTAIN_NAME.search(_words(name)) is not None


def _words(name: str) -> str:
    return _CAMEL.sub("_", name).lower().lstrip("-")
