"""The rules of redaction: those for secrets by name, and all of the default ones.

What has a shape of its own (`foldline.producers.redaction_shapes`) needs no more than the
shape. Rules that go by a name (`password=`) also ask `looks_secret`, because code and
prose are full of such names.
"""

import re
from re import Match

from foldline.producers.redaction_rule import VALUE_MAX, Rule, has_mixed
from foldline.producers.redaction_shapes import SHAPE_RULES
from foldline.producers.redaction_values import (
    JUDGED_MAX,
    NAME_WORDS,
    PATH,
    is_certain,
    is_reference,
    is_term,
    is_webhook,
    is_webhook_name,
    looks_secret,
    secret_by_name,
)


def _is_named(match: Match[str]) -> bool:
    """A value after a name; in an assignment of the shell nearly every value is one."""
    value, name = match["s"], match["name"]
    if is_webhook_name(name):
        return is_webhook(value)
    certain = is_certain(name)
    if match["shell"] is not None and name.isupper():
        return not is_reference(value, certain=certain) and not PATH.match(value)
    return looks_secret(value, certain=certain)


def _is_pair(match: Match[str]) -> bool:
    """A value whose name stands in a field of its own."""
    return secret_by_name(match["name"], match["s"])


def _is_no_reference(match: Match[str]) -> bool:
    """A value that stands where only a password does."""
    return not is_reference(match["s"], certain=True)


def _looks(match: Match[str]) -> bool:
    return looks_secret(match["s"])


def _is_header(match: Match[str]) -> bool:
    if match["scheme"] is not None:
        return not is_reference(match["s"], certain=True)
    return looks_secret(match["s"])


def _is_told(match: Match[str]) -> bool:
    """A value that a sentence gives: no word and no term, but what looks like a secret."""
    value = match["s"]
    return not is_term(value) and looks_secret(value, certain=True)


# --- the table -------------------------------------------------------------------

_QUOTE = r"""["'`\\]"""
# A terminal's escape sequence (it begins with ESC) is no part of a value.
_QUOTED = r"""[^\s"'`\\\x1b]"""
_PLAIN = r"""[^\s"'`\\,;(){}\[\]<>&|\x1b]"""
_REST_QUOTED = re.compile(rf"{_QUOTED}{{0,{VALUE_MAX}}}+")
_REST_PLAIN = re.compile(rf"{_PLAIN}{{0,{VALUE_MAX}}}+")


def _whole_value(match: Match[str]) -> int:
    """Where the value after a name ends; one that is short was taken whole."""
    start, end = match.span("s")
    if end - start < JUDGED_MAX:
        return end
    rest = _REST_PLAIN if match["quote"] is None else _REST_QUOTED
    found = rest.match(match.string, end)
    return end if found is None else found.end()


def _without_full_stop(match: Match[str]) -> int:
    """Where a value in a sentence ends: before what ends the sentence."""
    value = match["s"]
    return match.start("s") + len(value.rstrip(".!?*"))


NAME_RULES: tuple[Rule, ...] = (
    Rule(
        "url-password",
        ("://",),
        re.compile(
            r"""://[^\s/?#@:"'<>\\]{0,200}+:(?P<s>[^\s/?#@"'<>\\]{1,256}+)@(?=[\w\[.-])"""
        ),
        _is_no_reference,
    ),
    Rule(
        "authorization",
        ("authorization",),
        re.compile(
            rf"authorization{_QUOTE}{{0,4}}+\s{{0,8}}+(?:[:=]|=>)\s{{0,8}}+{_QUOTE}{{0,4}}+"
            r"(?:(?P<scheme>bearer|basic|token|bot|apikey|api-key|key|negotiate|digest"
            r"|aws4-hmac-sha256)\s{1,8}+)?"
            r"""(?P<s>(?(scheme)[^\r\n"'`\\]{4,8192}|[^\s"'`\\,;<>]{6,8192}))""",
            re.IGNORECASE,
        ),
        _is_header,
    ),
    Rule(
        "bearer",
        ("bearer",),
        re.compile(r"bearer\s{1,4}+(?P<s>[A-Za-z0-9._~+/=-]{16,8192}+)", re.IGNORECASE),
        _looks,
    ),
    Rule(
        "cookie",
        ("cookie",),
        re.compile(
            rf"cookie2?{_QUOTE}{{0,4}}+\s{{0,4}}+:\s{{0,4}}+{_QUOTE}{{0,4}}+"
            r"""(?P<s>[\w.%-]{1,100}+=[^\r\n"'`\\]{2,8192}+)""",
            re.IGNORECASE,
        ),
    ),
    Rule(
        "url-key",
        ("?key=", "&key="),
        re.compile(rf"[?&]key=(?P<s>{_PLAIN}{{16,512}}+)", re.IGNORECASE),
        has_mixed,
    ),
    Rule(
        "named",
        ("name:", 'name":', 'name\\":', "name':"),
        re.compile(
            rf"name{_QUOTE}{{0,4}}+:\s{{0,4}}+{_QUOTE}{{0,4}}+(?P<name>[\w-]{{2,60}}+)"
            rf"(?:\\[nrt]|[^a-z]){{1,60}}?value{_QUOTE}{{0,4}}+:\s{{0,4}}+"
            rf"(?P<quote>{_QUOTE}{{1,4}}+)?"
            rf"(?P<s>(?(quote){_QUOTED}{{3,{VALUE_MAX}}}+|{_PLAIN}{{3,{VALUE_MAX}}}+))",
            re.IGNORECASE,
        ),
        _is_pair,
    ),
    Rule(
        "netrc-password",
        ("machine ",),
        re.compile(
            r"machine\s{1,4}+\S{1,200}+\s{1,8}+login\s{1,4}+\S{1,200}+\s{1,8}+"
            r"password\s{1,4}+(?P<s>\S{1,200}+)",
            re.IGNORECASE,
        ),
    ),
    Rule(
        "curl-user",
        ("curl ",),
        re.compile(
            r"""curl [^\r\n]{0,120}?(?:-u|--user)[ =]{0,2}["']?[^\s"':]{1,100}+:"""
            r"""(?P<s>[^\s"'\\]{1,200})""",
            re.IGNORECASE,
        ),
        _is_no_reference,
    ),
    Rule(
        "option",
        ("--password", "--token", "--api-key", "--apikey", "--secret", "--auth-token"),
        re.compile(
            rf"--[a-z-]{{5,12}}+(?:=|\s{{1,4}}+){_QUOTE}{{0,2}}+(?P<s>(?!-){_PLAIN}{{4,512}}+)",
            re.IGNORECASE,
        ),
        _is_no_reference,
    ),
    Rule(
        "attached-password",
        ("mysql", "mariadb", "sshpass ", "redis-cli ", "docker login "),
        re.compile(
            r"(?:(?:mysql|mariadb)[a-z_-]{0,12}+\s[^\r\n|;&]{0,160}?(?<=\s)-p"
            r"|sshpass\s{1,4}+-p ?|redis-cli\s[^\r\n|;&]{0,160}?(?<=\s)-a "
            r"|docker login\s[^\r\n|;&]{0,160}?(?<=\s)-p ?)"
            rf"[\"']?(?P<s>{_PLAIN}{{3,128}}+)",
            re.IGNORECASE,
        ),
        _is_no_reference,
    ),
    Rule(
        "told",
        ("password", "passphrase", "passcode", "secret", "token", "api key", "pwd "),
        re.compile(
            r"(?:password|passphrase|passcode|secret(?: key)?|token|api key|pwd)"
            r"(?:\s[\w'`\"()@./-]{1,30}+){0,4}?\s(?:is|was|are|to|be|ist)\s{1,3}+"
            r"(?:now\s|still\s|:\s?)?[\"'`*]{0,3}+(?P<s>[^\s\"'`,;(){}\[\]<>\\]{6,256}+)",
            re.IGNORECASE,
        ),
        _is_told,
        extend=_without_full_stop,
    ),
    Rule(
        "named",
        (
            *("password", "passwd", "passphrase", "passcode", "secret", "token"),
            *("api_key", "api-key", "apikey", "access_key", "access-key", "accesskey"),
            *("private_key", "privatekey", "private-key", "secret_key", "secretkey"),
            *("account_key", "accountkey", "encryption_key", "signing_key", "auth_key"),
            *("credential", "client-key-data", "_auth", "pwd", "_pass"),
            *("webhook_url", "webhook-url", "webhookurl"),
        ),
        re.compile(
            rf"(?P<name>{NAME_WORDS}|pwd|_pass){_QUOTE}{{0,4}}+\]?"
            rf"(?:(?P<shell>=)|>|\s{{0,8}}+(?::=|=>|[:=])\s{{0,8}}+)"
            rf"(?P<quote>{_QUOTE}{{1,4}}+)?"
            rf"(?P<s>(?(quote){_QUOTED}{{3,{JUDGED_MAX}}}+"
            rf"|{_PLAIN}{{3,{JUDGED_MAX}}}+(?![(\[])))",
            re.IGNORECASE,
        ),
        _is_named,
        extend=_whole_value,
    ),
)

DEFAULT_RULES: tuple[Rule, ...] = (*SHAPE_RULES, *NAME_RULES)
"""What is looked for where nobody says otherwise."""
