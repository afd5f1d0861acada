"""Rules for what is personal and no secret; nobody gets them without asking.

`Redactor(key, rules=(*DEFAULT_RULES, *PII_RULES))`, or `pii = true` in a file of rules.
They go by shape, and by checksum where there is one; in code and logs they find much that
nobody minds (addresses of examples, versions that look like addresses of the network).
"""

import re
from re import Match

from foldline.producers.redaction_rule import Rule

_DIGITS = re.compile(r"\D")
_CARD_DIGITS = range(13, 20)
_PHONE_DIGITS = range(8, 16)
_BYTE_MAX = 255


def _is_iban(match: Match[str]) -> bool:
    """ISO 7064: the account's number with its country behind it is 1 modulo 97."""
    text = match["s"].replace(" ", "").upper()
    turned = text[4:] + text[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _is_card(match: Match[str]) -> bool:
    """Luhn: every second digit from the right counts twice."""
    digits = [int(char) for char in _DIGITS.sub("", match["s"])]
    if len(digits) not in _CARD_DIGITS or len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_phone(match: Match[str]) -> bool:
    return len(_DIGITS.sub("", match["s"])) in _PHONE_DIGITS


def _is_address(match: Match[str]) -> bool:
    parts = [int(part) for part in match["s"].split(".")]
    return max(parts) <= _BYTE_MAX and parts[0] not in {0, 127}


PII_RULES: tuple[Rule, ...] = (
    Rule(
        "email",
        (),
        re.compile(
            r"(?<![\w.+-])(?P<s>[\w.+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}+\.){1,8}[A-Za-z]{2,24})\b"
        ),
    ),
    Rule(
        "iban",
        (),
        re.compile(r"\b(?P<s>[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?)\b"),
        _is_iban,
    ),
    Rule(
        "card", (), re.compile(r"(?<![\w-])(?P<s>\d(?:[ -]?\d){12,18})(?![\w-])"), _is_card
    ),
    Rule(
        "phone",
        (),
        re.compile(r"(?<![\w+])(?P<s>\+[1-9]\d{0,2}(?:[ ().-]{1,2}\d{2,8}){1,5})(?!\w)"),
        _is_phone,
    ),
    Rule(
        "ssn",
        (),
        re.compile(
            r"(?<![\w-])(?P<s>(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4})(?![\w-])"
        ),
    ),
    Rule(
        "ip-address",
        (),
        re.compile(r"(?<![\w.])(?P<s>(?:\d{1,3}\.){3}\d{1,3})(?![\w.])"),
        _is_address,
    ),
)
"""E-mail, IBAN, payment card, telephone, US social security number, IPv4 address."""
