"""A policy agent for tests: serves the data API of Open Policy Agent over a policy in Rego, which regopy evaluates.

https://www.openpolicyagent.org/docs/rest-api: a rule's value is under ``result``, which is absent if it is undefined.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "access.md"
MASK = 'mask contains {"on": "hr.people", "column": "salary", "value": "NULL", "except": "user:olga"}'
PATH = "/v1/data/fusion/access"


def documented_policy() -> str:
    """Return the policy in Rego of docs/access.md."""
    return PAGE.read_text().split("```rego\n")[1].split("```")[0]


@dataclass
class PolicyAgent:
    """A running agent."""

    data: Mapping[str, object]
    """Data that the policy reads."""
    token: str = ""
    """Bearer token that it asks for."""
    status: int = 200
    """Status of its answers."""
    delay_s: float = 0.0
    """Time that it waits before each of them."""
    body: bytes | None = None
    """Answer in the place of its own."""
    questions: int = 0
    port: int = 0
    policy: str = field(default_factory=lambda: f"{documented_policy()}\n{MASK}")

    @property
    def url(self) -> str:
        """Address of the rules."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def answer(self, path: str) -> bytes:
        """Return the answer to a question."""
        if self.body is not None:
            return self.body
        import regopy

        interpreter = regopy.Interpreter()
        interpreter.add_module("access", self.policy)
        interpreter.add_data_json(json.dumps(self.data))
        rule = ".".join(path.removeprefix("/v1/").split("/"))
        bindings = json.loads(str(interpreter.query(f"x = {rule}"))).get("bindings", {})
        return json.dumps({"result": bindings["x"]} if "x" in bindings else {}).encode()


@contextmanager
def serving(agent: PolicyAgent) -> Iterator[PolicyAgent]:
    """Run an agent, on the port that it had before."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            agent.questions += 1
            time.sleep(agent.delay_s)
            is_known = self.headers.get("Authorization", "") == (f"Bearer {agent.token}" if agent.token else "")
            body = agent.answer(self.path)
            self.send_response(agent.status if is_known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", agent.port), Handler)
    agent.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield agent
    finally:
        server.shutdown()
        server.server_close()
