"""The tools of the agent: what each does to the world, and how it is executed.

Every call is a process of its own, thrown away afterwards (`tool_process.py`). So
`execute` has no state, and whatever a tool breaks in its process is gone with it.
"""

import http.client
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foldline import Reconciled, Tool, Toolbox, ToolContext
from foldline.tools import Effect, ToolError

PROGRAM = Path(__file__).with_name("tool_process.py")

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "GIT_CONFIG_GLOBAL": os.devnull,
}
"""All that a tool sees of the environment: where git is. No home, no key, no token."""

TIME_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs tools on one repository."""

    repository: Path
    post_office: str
    """The address of the mail server, host:port."""

    def execute(self, tool_name: str, input: str) -> str:  # noqa: A002 - its usual name
        """Run a tool in a new process on an input of JSON; gives what it said.

        Raises:
            ToolError: the tool failed; nobody looked whether its effect happened.
        """
        done = subprocess.run(  # noqa: S603 - our own program, no shell
            [sys.executable, "-IB", str(PROGRAM), tool_name],
            input=input,
            cwd=self.repository,
            env=ENVIRONMENT,
            timeout=TIME_LIMIT_S,
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
        if done.returncode != 0:
            raise ToolError(done.stderr.strip() or f"exit code {done.returncode}")
        return done.stdout.removesuffix("\n")

    def toolbox(self) -> Toolbox:
        """The tools as the session sees them; `effect` is what repeating one does."""
        return Toolbox(
            self._tool("read_file", "Read a file.", "READ_ONLY", path="relative path"),
            self._tool("run_tests", "Run the unit tests.", "READ_ONLY"),
            self._tool(
                "write_file",
                "Write a whole file.",
                "IDEMPOTENT",
                path="relative path",
                content="the whole new text",
            ),
            self._tool("commit", "Commit all changes.", "IDEMPOTENT", message="one line"),
            Tool(
                name="send_mail",
                description="Send a mail to a customer. Cannot be undone.",
                effect="RECONCILABLE",
                run=self._send_mail,
                reconcile=self._was_mail_sent,
                input_schema=_schema(to="address", subject="one line", text="the body"),
            ),
        )

    def _tool(self, name: str, description: str, effect: Effect, **inputs: str) -> Tool:
        def run(arguments: dict[str, Any], _context: ToolContext) -> str:
            return self.execute(name, json.dumps(arguments))

        return Tool(
            name=name,
            description=description,
            effect=effect,
            run=run,
            input_schema=_schema(**inputs),
        )

    def _send_mail(self, arguments: dict[str, Any], context: ToolContext) -> str:
        """Send under the operation_id: it is the same in every attempt of this call."""
        known = {"post_office": self.post_office, "message_id": context.operation_id}
        return self.execute("send_mail", json.dumps(arguments | known))

    def _was_mail_sent(
        self, _arguments: dict[str, Any], context: ToolContext
    ) -> Reconciled:
        """Ask the post office, which knows every mail that it has sent."""
        connection = http.client.HTTPConnection(self.post_office, timeout=TIME_LIMIT_S)
        connection.request("GET", f"/mails/{context.operation_id}")
        found = json.load(connection.getresponse())
        if not found:
            return Reconciled(executed=False, evidence="no mail of this Message-ID")
        return Reconciled(
            executed=True,
            said=f"sent as mail {found[0]['number']}",
            evidence=f"mail {found[0]['number']} has this Message-ID",
        )


def _schema(**inputs: str) -> dict[str, Any]:
    """The JSON schema of an object of texts, each described."""
    properties = {
        name: {"type": "string", "description": text} for name, text in inputs.items()
    }
    return {"type": "object", "properties": properties, "required": list(inputs)}
