"""Text in which there is no secret, and much that looks like one."""

import json
import random


def logs() -> str:
    """Lines as servers, package managers and version control write them."""
    rng = random.Random(3)
    lines: list[str] = []
    for number in range(6_000):
        digest = f"{rng.getrandbits(160):040x}"
        sha256 = f"{rng.getrandbits(256):064x}"
        uuid = (
            f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"
        )
        lines += [
            f"2026-01-02T03:04:{number % 60:02}Z INFO worker-{number % 9} request={uuid}",
            f'10.0.0.{number % 255} - - "GET /v1/items/{number}?page=2" 200 {number}',
            f"commit {digest}\nAuthor: Some Body <somebody@example.org>",
            f"Downloading package_{number}-1.2.3-py3-none-any.whl sha256={sha256}",
            json.dumps({"id": uuid, "etag": digest, "tokens": number, "max_tokens": 4096}),
            f"  warning: unused variable `token_{number}` at src/auth/token.rs:{number}:5",
            f"-rw-r--r-- 1 root root {number} Jan  2 03:04 /etc/ssl/certs/{digest[:8]}.0",
        ]
    return "\n".join(lines)
