"""The rules of redaction, as data: what a secret looks like, and where it is found.

A rule names literal `anchors`; wherever one occurs, the rule's pattern is tried exactly
there and nowhere else. So a text without anchors costs a few substring searches, and a
text full of them costs a bounded number of steps per anchor: every quantifier has an
upper bound, and those that could give back what they took do not (possessive).

Rules with a shape of their own (a vendor's prefix) need no more than the shape. Rules
that go by a name (`password=`) also ask `looks_secret`, because code and prose are full
of such names.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from re import Match

from foldline.producers.redaction_values import (
    JUDGED_MAX,
    NAME_WORDS,
    PATH,
    is_certain,
    is_mixed,
    is_reference,
    looks_secret,
    secret_by_name,
)

Check = Callable[[Match[str]], bool]
Extend = Callable[[Match[str]], int]

VALUE_MAX = 8_192
"""The longest value, in characters, that a rule takes for one secret."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret.

    `name` goes into the placeholder. `anchors` are lower-case literals (of the text as
    it is, if `exact_case`); `pattern` is matched at each place where one begins, and what
    its group `s` holds is replaced. `check` may refuse a match. `extend` tells where a
    secret ends of which the pattern takes only the begin: what is refused, perhaps at
    every anchor of a text made of anchors, has then cost little.
    """

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Check | None = None
    exact_case: bool = False
    extend: Extend | None = None


# --- checks ------------------------------------------------------------------------


def _is_jwt(match: Match[str]) -> bool:
    """The first part of a JWT decodes to JSON that names an algorithm."""
    head = match["s"].partition(".")[0]
    try:
        raw = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
        return "alg" in json.loads(raw)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return False


def _is_mixed(match: Match[str]) -> bool:
    return is_mixed(match["s"])


def _is_named(match: Match[str]) -> bool:
    """A value after a name; in an assignment of the shell nearly every value is one."""
    value = match["s"]
    if match["shell"] is not None and match["name"].isupper():
        return not is_reference(value) and not PATH.match(value)
    return looks_secret(value, certain=is_certain(match["name"]))


def _is_pair(match: Match[str]) -> bool:
    """A value whose name stands in a field of its own."""
    return secret_by_name(match["name"], match["s"])


def _is_no_reference(match: Match[str]) -> bool:
    return not is_reference(match["s"])


def _looks(match: Match[str]) -> bool:
    return looks_secret(match["s"])


def _is_header(match: Match[str]) -> bool:
    if match["scheme"] is not None:
        return not is_reference(match["s"])
    return looks_secret(match["s"])


# --- the table -------------------------------------------------------------------

# A token begins at a border, and a border may be the end of an escape.
_B = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{2})|(?<=\dm))"
_E = r"(?![A-Za-z0-9])"
_CHAR = r"[A-Za-z0-9_-]"


def _shape(name: str, anchors: str, pattern: str, check: Check | None = None) -> Rule:
    """A rule for secrets with a prefix of their own; their case matters."""
    return Rule(
        name,
        tuple(anchors.split()),
        re.compile(f"{_B}(?P<s>{pattern})"),
        check,
        exact_case=True,
    )


_QUOTE = r"""["'`\\]"""
# A terminal's escape sequence (it begins with ESC) is no part of a value.
_QUOTED = r"""[^\s"'`\\\x1b]"""
_PLAIN = r"""[^\s"'`\\,;(){}\[\]<>&|\x1b]"""
_REST_QUOTED = re.compile(rf"{_QUOTED}{{0,{VALUE_MAX}}}+")
_REST_PLAIN = re.compile(rf"{_PLAIN}{{0,{VALUE_MAX}}}+")


def _whole_value(match: Match[str]) -> int:
    """Where the value after a name ends."""
    rest = _REST_PLAIN if match["quote"] is None else _REST_QUOTED
    found = rest.match(match.string, match.end("s"))
    return match.end("s") if found is None else found.end()


DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(
        "private-key",
        ("-----begin",),
        re.compile(
            r"(?P<s>-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----)){0,20000}+-----END [A-Z0-9 ]{0,60}-----"
            r"|(?:(?:\\[nr]|\s){0,8}+[A-Za-z0-9+/=]{16,128}+){1,400}+))"
        ),
    ),
    _shape("aws-key-id", "AKIA ASIA ABIA ACCA", rf"A[KSBC][IC]A[A-Z0-9]{{16}}{_E}"),
    _shape("google-api-key", "AIza", rf"AIza{_CHAR}{{35}}(?!{_CHAR})"),
    _shape("google-oauth", "ya29.", r"ya29\.[A-Za-z0-9_.-]{20,2048}+"),
    _shape("google-secret", "GOCSPX-", rf"GOCSPX-{_CHAR}{{20,60}}+"),
    _shape(
        "github-pat",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{20,255}+|github_pat_\w{20,255}+)",
    ),
    _shape(
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glcbt- glft- glsoat- glagent- gloas- glimt-",
        rf"gl[a-z]{{2,6}}-{_CHAR}{{16,255}}+",
    ),
    _shape("slack-token", "xox xapp-", r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,250}+"),
    _shape(
        "slack-webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}+",
    ),
    _shape("anthropic-key", "sk-ant-", rf"sk-ant-{_CHAR}{{16,255}}+"),
    _shape(
        "openai-key",
        "sk-",
        rf"sk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-|lf-)?{_CHAR}{{20,255}}+",
        _is_mixed,
    ),
    _shape("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,60}+"),
    _shape(
        "stripe-key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,255}+",
    ),
    _shape("twilio-key", "SK", rf"SK[0-9a-f]{{32}}{_E}"),
    _shape("sendgrid-key", "SG.", rf"SG\.{_CHAR}{{16,40}}+\.{_CHAR}{{16,80}}+"),
    _shape("npm-token", "npm_", rf"npm_[A-Za-z0-9]{{36}}{_E}"),
    _shape("pypi-token", "pypi-AgE", rf"pypi-AgE{_CHAR}{{40,500}}+"),
    _shape("docker-token", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{_CHAR}{{20,80}}+"),
    _shape("databricks-token", "dapi", rf"dapi[0-9a-f]{{32}}(?:-\d)?{_E}"),
    _shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[por]_v1_[0-9a-f]{64}"),
    _shape("notion-token", "ntn_ secret_", rf"(?:ntn|secret)_[A-Za-z0-9]{{40,60}}+{_E}"),
    _shape("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_-]{40,512}+"),
    _shape("vault-token", "hvs. hvb. hvr.", rf"hv[sbr]\.{_CHAR}{{20,255}}+"),
    _shape("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,64}+"),
    _shape(
        "vendor-token",
        "tvly- dtn_ gsk_ xai- r8_ pplx- lin_api_ figd_ shpat_ shpss_ shpca_ nvapi- csk-",
        rf"(?:tvly-|dtn_|gsk_|xai-|r8_|pplx-|lin_api_|figd_|shp(?:at|ss|ca)_|nvapi-|csk-)"
        rf"{_CHAR}{{20,255}}+",
        _is_mixed,
    ),
    Rule(
        "telegram-token",
        (":aa",),
        re.compile(rf"(?<=[0-9]{{7}}):(?P<s>AA{_CHAR}{{32,36}}+)"),
    ),
    Rule(
        "webhook",
        ("/api/webhooks/",),
        re.compile(rf"/api/webhooks/\d{{15,22}}/(?P<s>{_CHAR}{{40,120}}+)", re.IGNORECASE),
    ),
    _shape(
        "jwt",
        "eyJ",
        rf"eyJ{_CHAR}{{8,4096}}+\.{_CHAR}{{8,16384}}+\.{_CHAR}{{0,2048}}+",
        _is_jwt,
    ),
    Rule(
        "azure-signature",
        ("sig=",),
        re.compile(r"(?<=[?&;])sig=(?P<s>[A-Za-z0-9%/+=_-]{20,200}+)", re.IGNORECASE),
    ),
    Rule(
        "azure-secret",
        ("8Q~",),
        re.compile(r"(?<=[\w.~-]{3})(?P<s>8Q~[\w.~-]{30,40}+)"),
        exact_case=True,
    ),
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
        _is_mixed,
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
        "named",
        (
            *("password", "passwd", "passphrase", "passcode", "secret", "token"),
            *("api_key", "api-key", "apikey", "access_key", "access-key", "accesskey"),
            *("private_key", "privatekey", "private-key", "secret_key", "secretkey"),
            *("account_key", "accountkey", "encryption_key", "signing_key", "auth_key"),
            *("credential", "client-key-data", "_auth", "pwd", "_pass"),
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
