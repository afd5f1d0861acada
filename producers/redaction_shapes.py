"""Secrets with a shape of their own: a vendor's prefix, a header, a checkable form.

They need no name beside them, and case matters in most. A new vendor's prefix that is
followed by a random token belongs into `vendor-token`.
"""

import base64
import binascii
import json
import re
from re import Match

from foldline.producers.redaction_rule import (
    CHAR,
    END,
    Rule,
    has_mixed,
    rest_of_token,
    shape,
)


def _is_jwt(match: Match[str]) -> bool:
    """The first part of a JWT decodes to JSON that names an algorithm."""
    head = match["s"].partition(".")[0]
    try:
        raw = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
        return "alg" in json.loads(raw)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        return False


def _is_discord(match: Match[str]) -> bool:
    """The first part of a bot's token is its id, in base64: nothing but digits."""
    head = match["s"].partition(".")[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).isdigit()
    except (binascii.Error, ValueError):
        return False


SHAPE_RULES: tuple[Rule, ...] = (
    Rule(
        "private-key",
        ("-----begin",),
        re.compile(
            r"(?P<s>-----BEGIN (?:(?:[A-Z0-9]{1,20}+ ){0,4}PRIVATE KEY(?: BLOCK)?"
            r"|OpenVPN Static key V1)-----"
            r"(?:(?:[^-]|-(?!----)){0,20000}+-----END [A-Za-z0-9 ]{0,60}-----"
            r"|(?:(?:\\[nr]|\s){0,8}+[A-Za-z0-9+/=]{16,128}+){1,400}+))"
        ),
    ),
    Rule(
        "private-key",
        ("private-lines:",),
        re.compile(
            r"private-lines:\s?\d{1,3}+\s{1,4}+(?P<s>(?:[A-Za-z0-9+/=]{16,128}+\s{0,3}+){1,200}+)",
            re.IGNORECASE,
        ),
    ),
    Rule(
        "aws-secret",
        ("AKIA", "ASIA"),
        re.compile(
            rf"A[KS]IA[A-Z0-9]{{16}}{END}(?:[^A-Za-z0-9]|[A-Za-z_]{{1,24}}+(?![A-Za-z0-9/+_])){{1,12}}?"
            rf"(?P<s>(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=]))"
        ),
        has_mixed,
        exact_case=True,
    ),
    shape("aws-key-id", "AKIA ASIA ABIA ACCA", rf"A[KSBC][IC]A[A-Z0-9]{{16}}{END}"),
    shape("google-api-key", "AIza", rf"AIza{CHAR}{{35}}(?!{CHAR})"),
    shape("google-oauth", "ya29.", r"ya29\.[A-Za-z0-9_.-]{20,2048}+"),
    shape("google-secret", "GOCSPX-", rf"GOCSPX-{CHAR}{{20,60}}+"),
    shape(
        "github-pat",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{20,255}+|github_pat_\w{20,255}+)",
    ),
    shape(
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glcbt- glft- glsoat- glagent- gloas- glimt-",
        rf"gl[a-z]{{2,6}}-{CHAR}{{16,255}}+",
    ),
    shape("slack-token", "xox xapp-", r"(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{10,250}+"),
    shape(
        "slack-webhook",
        "hooks.slack.com/",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,200}+",
    ),
    shape("anthropic-key", "sk-ant-", rf"sk-ant-{CHAR}{{16,255}}+"),
    shape(
        "openai-key",
        "sk-",
        rf"sk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-|lf-)?{CHAR}{{20,64}}+",
        has_mixed,
        rest_of_token,
    ),
    shape("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,60}+"),
    shape(
        "stripe-key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        r"(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,255}+",
    ),
    shape("twilio-key", "SK", rf"SK[0-9a-f]{{32}}{END}"),
    shape("sendgrid-key", "SG.", rf"SG\.{CHAR}{{16,40}}+\.{CHAR}{{16,80}}+"),
    shape("npm-token", "npm_", rf"npm_[A-Za-z0-9]{{36}}{END}"),
    shape("pypi-token", "pypi-AgE", rf"pypi-AgE{CHAR}{{40,500}}+"),
    shape("docker-token", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{CHAR}{{20,80}}+"),
    shape("databricks-token", "dapi", rf"dapi[0-9a-f]{{32}}(?:-\d)?{END}"),
    shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[por]_v1_[0-9a-f]{64}"),
    shape("notion-token", "ntn_ secret_", rf"(?:ntn|secret)_[A-Za-z0-9]{{40,60}}+{END}"),
    shape("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_-]{40,512}+"),
    shape("vault-token", "hvs. hvb. hvr.", rf"hv[sbr]\.{CHAR}{{20,255}}+"),
    shape("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,64}+"),
    shape(
        "vendor-token",
        "tvly- dtn_ gsk_ xai- r8_ pplx- lin_api_ figd_ shpat_ shpss_ shpca_ nvapi- csk-",
        rf"(?:tvly-|dtn_|gsk_|xai-|r8_|pplx-|lin_api_|figd_|shp(?:at|ss|ca)_|nvapi-|csk-)"
        rf"{CHAR}{{20,64}}+",
        has_mixed,
        rest_of_token,
    ),
    shape(
        "vendor-token",
        "glsa_ glc_ pscale_tkn_ pscale_pw_ pscale_oauth_ PMAK- NRAK- pul- sbp_ rubygems_"
        " HRKU- ATATT3 ATCTT3 ops_eyJ sq0csp- sq0atp- dt0c01. AKCp lsv2_pt_ lsv2_sk_"
        " e2b_ pcsk_ jina_ sgp_ dp.pt. dp.st. fo1_ fm2_ ATBB",
        r"(?:glsa_|glc_|pscale_(?:tkn|pw|oauth)_|PMAK-|NRAK-|pul-|sbp_|rubygems_|HRKU-"
        r"|AT[AC]TT3|ops_eyJ|sq0(?:csp|atp)-|dt0c01\.|AKCp|lsv2_(?:pt|sk)_|e2b_|pcsk_"
        r"|jina_|sgp_|dp\.[ps]t\.|fo1_|fm2_|ATBB)[A-Za-z0-9_.=-]{20,64}+",
        has_mixed,
        rest_of_token,
    ),
    shape("mailgun-key", "key-", rf"key-[0-9a-f]{{32}}{END}"),
    shape(
        "discord-token",
        "MD MT Mj Mz ND NT Nj Nz OD OT",
        rf"[MNO][DTjz]{CHAR}{{21,26}}+\.{CHAR}{{6}}\.{CHAR}{{27,40}}+",
        _is_discord,
    ),
    shape("discord-token", "mfa.", rf"mfa\.{CHAR}{{70,100}}+"),
    Rule(
        "telegram-token",
        (":aa",),
        re.compile(rf"(?<=[0-9]{{7}}):(?P<s>AA{CHAR}{{32,36}}+)"),
    ),
    Rule(
        "webhook",
        (".webhook.office.com/", "outlook.office.com/webhook/"),
        re.compile(
            r"(?:\.webhook\.office\.com/|outlook\.office\.com/webhook/)"
            r"(?P<s>[A-Za-z0-9/@_-]{40,400}+)",
            re.IGNORECASE,
        ),
    ),
    Rule(
        "webhook",
        ("/api/webhooks/",),
        re.compile(rf"/api/webhooks/\d{{15,22}}/(?P<s>{CHAR}{{40,120}}+)", re.IGNORECASE),
    ),
    shape(
        "jwt",
        "eyJ",
        rf"eyJ{CHAR}{{8,4096}}+\.{CHAR}{{8,16384}}+\.{CHAR}{{0,2048}}+",
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
)
