"""The rules: what each finds, what none finds, and that none can run away."""

import re
import string
from typing import Any

import pytest

from foldline.producers.redaction import Redactor
from foldline.producers.redaction_bounds import TOO_MANY, slow_in
from foldline.producers.redaction_pii import PII_RULES
from foldline.producers.redaction_rules import DEFAULT_RULES

RULES_MAX = 64

# Made up, and put together here so that no scanner takes this file for a leak.
WORD = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8"
LONG = WORD * 3
UUID = "123e4567-e89b-12d3-a456-426614174000"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
PEM = "-----BEGIN {0}-----\n" + "MIIEpAIBAAKCAQEA7Zx\n" * 3 + "-----END {0}-----"

SHAPES: list[tuple[str, str]] = [
    ("private-key", PEM.format("RSA PRIVATE KEY")),
    ("private-key", PEM.format("OPENSSH PRIVATE KEY").replace("\n", "\\n")),
    ("private-key", PEM.format("PGP PRIVATE KEY BLOCK")),
    ("aws-key-id", "AKIA" + "Q7W3E5R2T6Y4U7I5"),
    ("aws-key-id", "ASIA" + "Q7W3E5R2T6Y4U7I5"),
    ("google-api-key", "AIza" + LONG[:35]),
    ("google-oauth", "ya29." + LONG),
    ("google-secret", "GOCSPX-" + LONG[:28]),
    *[("github-pat", f"gh{kind}_" + LONG[:36]) for kind in "pousr"],
    ("github-pat", "github_pat_" + LONG[:59]),
    ("gitlab-token", "glpat-" + LONG[:20]),
    ("gitlab-token", "gldt-" + LONG[:20]),
    ("slack-token", "xoxb-" + "123456789012-" + LONG[:24]),
    ("slack-token", "xapp-" + "1-A111-222-" + HEX),
    ("slack-webhook", "https://" + "hooks.slack.com/services/T000AAAA/B000BBBB/" + WORD),
    ("anthropic-key", "sk-ant-" + "api03-" + LONG),
    ("openai-key", "sk-" + LONG[:48]),
    ("openai-key", "sk-proj-" + LONG),
    ("huggingface-token", "hf_" + LONG[:34]),
    ("stripe-key", "sk_live_" + LONG[:24]),
    ("stripe-key", "whsec_" + LONG[:32]),
    ("twilio-key", "SK" + HEX),
    ("sendgrid-key", "SG." + LONG[:22] + "." + LONG[:43]),
    ("npm-token", "npm_" + LONG[:36]),
    ("pypi-token", "pypi-AgE" + LONG),
    ("docker-token", "dckr_pat_" + LONG[:27]),
    ("databricks-token", "dapi" + HEX),
    ("digitalocean-token", "dop_v1_" + HEX * 2),
    ("notion-token", "ntn_" + LONG[:46]),
    ("notion-token", "secret_" + LONG[:43]),
    ("sentry-token", "sntrys_" + LONG),
    ("vault-token", "hvs." + LONG[:24]),
    ("age-key", "AGE-SECRET-KEY-1" + (LONG * 2).upper()[:58]),
    ("vendor-token", "tvly-" + "dev-" + LONG[:32]),
    ("vendor-token", "gsk_" + LONG[:52]),
    ("telegram-token", "1234567890:" + "AA" + LONG[:33]),
    ("webhook", "https://discord.com" + "/api/webhooks/123456789012345678/" + LONG[:68]),
    ("azure-secret", "aB3" + "8Q~" + LONG[:34]),
    (
        "jwt",
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0." + LONG[:43],
    ),
]

CONTEXTS: list[tuple[str, str, str]] = [
    ("authorization", f"Authorization: Bearer {LONG}", LONG),
    ("authorization", "curl -H 'authorization: Basic dXNlcjpodW50ZXIyMg=='", "dXNlcjpo"),
    ("authorization", f'{{headers: {{"Authorization": "token {WORD}"}}', WORD),
    (
        "authorization",
        f"Authorization: AWS4-HMAC-SHA256 Credential={WORD}/x, Signature={HEX}",
        HEX,
    ),
    ("bearer", f"got bearer {LONG} from it", LONG),
    ("cookie", "Cookie: theme=dark; session=s3cr3t-v4lue", "s3cr3t-v4lue"),
    ("cookie", "Set-Cookie: sid=s3cr3t-v4lue; Path=/", "s3cr3t-v4lue"),
    ("url-password", "postgres://app:hunter22@db:5432/main", "hunter22"),
    ("netrc-password", "machine example.org login me password hunter22", "hunter22"),
    ("curl-user", "curl -s -u admin:hunter22 https://example.org", "hunter22"),
    ("option", "mysqldump --password hunter22 main", "hunter22"),
    ("azure-signature", f"https://a.blob.core/x?sv=1&sig={WORD}%3D", WORD),
    ("named", f"x-api-key: {HEX}", HEX),
    ("named", f'apiKey = "{WORD}"', WORD),
    ("named", f"aws_secret_access_key = {LONG[:40]}", LONG[:40]),
    ("named", "password: hunter22", "hunter22"),
    ("named", 'db.password="hunter22"', "hunter22"),
    ("named", f"GET /v1?access_token={WORD}&page=2", WORD),
    ("named", "Server=db;User=app;Password=hunter22;", "hunter22"),
    ("named", f"AccountKey={LONG}==;EndpointSuffix=core", LONG),
    ("named", f"//registry.example.org/:_authToken={WORD}", WORD),
    ("named", f"client-key-data: {LONG}", LONG),
    ("named", "DB_PASSWORD=postgres", "postgres"),
    ("named", "export SECRET_KEY=abc", "=abc"),
    ("named", f"TAVILY_API_KEY={WORD}", WORD),
    ("named", '\\"password\\": \\"hunter22\\"', "hunter22"),
    ("named", "password => 'hunter22'", "hunter22"),
    ("named", "<password>hunter22</password>", "hunter22"),
    ("named", "\x1b[32mpassword: hunter22\x1b[0m", "hunter22"),
    ("named", "- name: DB_PASSWORD\n  value: postgres", "postgres"),
    ("named", 'see [{"name": "X-Api-Key", "value": "hunter22"}]', "hunter22"),
    ("named", '\\"name\\":\\"API_TOKEN\\",\\n\\"value\\":\\"hunter22\\"', "hunter22"),
    ("url-key", f"GET /v1?page=2&key={WORD}&sort=up", WORD),
    # What only begins like a reference, or has a word for an example in it.
    ("named", '{"password": "$ecret!Pa55w0rd"}', "$ecret!Pa55w0rd"),
    ("named", '{"password": "@dm1n!Xq93zz"}', "@dm1n!Xq93zz"),
    ("named", '{"password": "MySample#4711xQ"}', "MySample#4711xQ"),
    ("named", '{"password": "$2b$12$abcdefghijklmno"}', "$12$abcdefghijklmno"),
    ("named", "see password: env.Pa55!word", "env.Pa55!word"),
    ("named", "DB_PASSWORD=MySample#4711xQ", "MySample#4711xQ"),
    ("url-password", "postgres://app:Example!4711@db:5432/main", "Example!4711"),
    ("option", "mysqldump --password %Xq93zz%4! main", "%Xq93zz%4!"),
    # The URL of a webhook is its key.
    ("named", f"WEBHOOK_URL=https://hooks.example.net/in/{WORD}", WORD),
    ("named", f'{{"webhookUrl": "https://hooks.example.net/in/{WORD}"}}', WORD),
    (
        "webhook",
        f"see https://acme.webhook.office.com/webhookb2/{UUID}@{UUID}/IncomingWebhook/{HEX}",
        HEX,
    ),
]

CLEAN = [
    "commit e53647ba1f1e5203bedff558b482f178db045555",
    "id: 123e4567-e89b-12d3-a456-426614174000",
    "token = tokens[index]",
    "const secret = getSecret(name)",
    "password: str = Field(default=None)",
    "api_key = os.environ['API_KEY']",
    "API_KEY=YOUR_API_KEY",
    "API_KEY=<your key>",
    "password=${DB_PASSWORD} token=$TOKEN",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token>",
    "the token expired and the password was changed",
    "max_tokens: 4096, input_tokens=12345",
    "PWD=/home/somebody/project",
    "SECRETS_FILE=/run/secrets/x",
    "postgres://localhost:5432/main",
    "https://${USER}:${PASS}@example.org/",
    "sk-folding-cube-child-element-animation",
    "class TokenAuthentication(BaseAuthentication):",
    "from tokenize import tokenize",
    "cookie: a small sweet biscuit",
    "see docs/credentials.md and secrets.yaml",
    "risk-assessment-of-the-whole-system-2024",
    "toolu_01HXFLXpDy2u8jcLHCiRxFSG msg_01XU4B1nvSytVjiR8jEYREvX req_011CWrSSthis",
    "-----BEGIN CERTIFICATE-----",
    "fn next(&self) -> Option<Token>::Some",
    "name: max_tokens\nvalue: 4096",
    "name: page\nvalue: secret-garden-2",
    "/search?key=order-by-creation-date&page=2",
    "-----BEGIN PRIVATE KEY----- is how such a file begins",
    '{"password": "$DB_PASSWORD"}',
    '{"password": "${DB_PASSWORD:-none}"}',
    '{"password": "$env:DB_PASSWORD"}',
    '{"password": "%DB_PASSWORD%"}',
    '{"password": "{password}"}',
    '{"password": "<your password>"}',
    '{"password": "@password"}',
    '{"password": "process.env.DB_PASSWORD"}',
    """{"password": "os.environ['DB_PASSWORD']"}""",
    '{"password": "your-password-here"}',
    '{"password": "********"}',
    '{"password": "xxxx-xxxx"}',
    '{"api_key": "sk-..."}',
    "postgres://$USER:$PASSWORD@db:5432/main",
    "WEBHOOK_URL=https://app.example.org/api/hooks/incoming",
    '{"webhook_url": "https://app.example.org/hook"}',
]


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(b"k" * 32)


SURROUNDINGS = [
    *("{}", "it is {} there", '"{}"', "x={}&y=1"),
    *("(\\n{}\\n)", "\x1b[31m{}\x1b[0m", "a%3D{}"),
]


@pytest.mark.parametrize(("rule", "secret"), SHAPES)
def test_a_secret_with_a_shape_of_its_own_is_found_in_every_surrounding(
    redactor: Redactor, rule: str, secret: str
) -> None:
    for around in SURROUNDINGS:
        said, counts = redactor.redact_text(around.format(secret))
        assert secret not in said
        assert secret[8:] not in said
        assert f"‹secret:{rule}:" in said
        assert counts == {rule: 1}


@pytest.mark.parametrize(("rule", "line", "secret"), CONTEXTS)
def test_a_secret_is_found_by_the_name_that_it_stands_under(
    redactor: Redactor, rule: str, line: str, secret: str
) -> None:
    said, counts = redactor.redact_text(line)
    assert secret not in said
    assert f"‹secret:{rule}:" in said
    assert sum(counts.values()) == 1


@pytest.mark.parametrize("line", CLEAN)
def test_what_only_looks_like_a_secret_is_left_alone(redactor: Redactor, line: str) -> None:
    assert redactor.redact_text(line) == (line, {})


def test_there_are_few_rules_and_each_has_a_name_for_its_placeholder() -> None:
    assert len(DEFAULT_RULES) <= RULES_MAX
    assert all(re.fullmatch("[a-z0-9-]{1,40}", rule.name) for rule in DEFAULT_RULES)


@pytest.mark.parametrize("rule", [*DEFAULT_RULES, *PII_RULES], ids=lambda rule: rule.name)
def test_every_repetition_in_a_rule_has_an_upper_bound(rule: Any) -> None:
    """What is bounded costs a bounded number of steps per anchor, on any text."""
    assert slow_in(rule.pattern.pattern) in {"", TOO_MANY}


def test_of_the_default_rules_one_is_bound_by_more_than_the_count_of_its_ways() -> None:
    """Between a name and its value no two ways are alike: an escape is no other letter."""
    wide = [rule for rule in DEFAULT_RULES if slow_in(rule.pattern.pattern)]
    assert [rule.anchors[0] for rule in wide] == ["name:"]


@pytest.mark.parametrize("rule", DEFAULT_RULES, ids=lambda rule: rule.name)
def test_anchors_are_literals_that_select_few_texts(rule: Any) -> None:
    for anchor in rule.anchors:
        assert len(anchor) >= 2
        assert rule.exact_case or anchor == anchor.lower()


def test_a_text_made_of_anchors_alone_comes_out_and_holds_no_secret(
    redactor: Redactor,
) -> None:
    anchors = "".join(anchor for rule in DEFAULT_RULES for anchor in rule.anchors)
    said, _ = redactor.redact_text((anchors + string.printable) * 20)
    assert redactor.redact_text(said) == (said, {})
