"""What guard and trainer read of a job and its silo, as text that stays the same for as long as the job runs.

What holds for a job in a silo is what held when it began there. Beside it the guard reads the policy as it is now,
which can only forbid more: the guard applies both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedsilo.api.agent import SiloAgent
from fedsilo.api.silo import Silo, SiloAgentTemplate

AGENT_FILE, SILO_FILE = "agent.json", "silo.json"


def configuration(agent: SiloAgent, silo: Silo) -> dict[str, str]:
    """SiloAgent and Silo as guard and trainer read them: name of the file -> text."""
    started = agent.model_copy(update={"spec": agent.spec.model_copy(update={"suspend": False})})
    return {AGENT_FILE: _document(started), SILO_FILE: _document(silo)}


def current_policy(silo: Silo) -> dict[str, str]:
    """The Silo with its policy as it is now, in the same form.

    Decisions about jobs and how pods run are no part of it, since the guard judges by neither.
    """
    rules = silo.spec.policy.model_copy(update={"approvals": ()})
    spec = silo.spec.model_copy(update={"policy": rules, "agent": SiloAgentTemplate()})
    return {SILO_FILE: _document(silo.model_copy(update={"spec": spec}))}


def fingerprint(files: Mapping[str, str]) -> str:
    """SHA-256 of such files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _document(model: SiloAgent | Silo) -> str:
    """An object without what an API server and controllers write into it."""
    content: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    content.pop("status", None)
    content["metadata"] = {key: content["metadata"][key] for key in ("name", "namespace")}
    return _indented_json(json.dumps(content, sort_keys=True))


@lru_cache(maxsize=1024)
def _indented_json(text: str) -> str:
    """JSON on lines of its own, remembered: an operator writes the same Silo for every job, and indented slowly."""
    return json.dumps(json.loads(text), indent=1, sort_keys=True)
