"""Policy service: access rules that an Open Policy Agent gives, as a policy file has them but in JSON.

They are fetched again and again. An answer that holds no rules counts as none; those fetched last are used for a
limited time, and after that everything is closed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time

from gateway.security.access.policy_file import GONE, LARGEST_BYTES, AccessRulesInvalid, rules_of
from gateway.security.access.rules import AccessRules
from gateway.security.access.settings import OpaSettings
from gateway.security.documents import DocumentFault, connected, json_document

log = logging.getLogger(__name__)


class PolicyService:
    """Access rules of an Open Policy Agent. Thread-safe; the first ones are fetched before it is there."""

    def __init__(self, settings: OpaSettings) -> None:
        self._settings = settings
        self._state = (GONE, 0.0, "")  # rules, time until which they hold, their digest
        self._was_answered = True
        self._stopped = threading.Event()
        self._fetch()
        threading.Thread(target=self._run, name="policy service", daemon=True).start()

    def current(self) -> AccessRules:
        """Return the active rules. Does not block."""
        rules, until_s, _ = self._state
        return rules if time.monotonic() < until_s else GONE

    def stop(self) -> None:
        """Fetch no more; the rules hold until they are too old."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._settings.refresh_s):
            self._fetch()

    def _fetch(self) -> None:
        asked_s = time.monotonic()
        try:
            digest, rules = self._unless_known(fetch(self._settings))
        except (DocumentFault, AccessRulesInvalid) as error:
            if self._was_answered:
                log.error("the policy service gives no access rules; those it gave last hold for a time: %s", error)
            self._was_answered = False
            return
        if digest != self._state[2] or not self._was_answered:
            log.info("access rules of the policy service hold, version %s", rules.version)
        self._was_answered = True
        self._state = (rules, asked_s + self._settings.max_age_s, digest)

    def _unless_known(self, content: str) -> tuple[str, AccessRules]:
        """Return a document's digest and rules, the same object for the same document. Raises AccessRulesInvalid."""
        rules, _, known_digest = self._state
        digest = hashlib.sha256(content.encode()).hexdigest()
        return digest, rules if digest == known_digest else rules_in(content)


def fetch(settings: OpaSettings) -> str:
    """Return the rules that an agent gives, JSON with sorted keys. Raises DocumentFault."""
    assert settings.url is not None
    token = settings.token.get_secret_value()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with connected(settings.timeout_s, settings.ca_file) as client:
        document = json_document(client, settings.url, settings.timeout_s, headers=headers, largest_bytes=LARGEST_BYTES)
    if not isinstance(document.get("result"), dict):
        raise DocumentFault(f"{settings.url} is undefined: a policy must give an object with the keys of a policy file")
    try:
        return json.dumps(document["result"], sort_keys=True)
    except RecursionError as error:
        raise DocumentFault(f"{settings.url} is nested too deep") from error


def rules_in(content: str) -> AccessRules:
    """Return the rules of a document. Raises AccessRulesInvalid."""
    return rules_of(json.loads(content), content.encode())
