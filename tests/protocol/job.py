"""The job of a run: who takes part, with which keys, and by which method."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any
from unittest import mock

from fedsilo.api.agent import FrozenJob, SiloAgent, SiloAgentSpec, TrustBundle
from fedsilo.api.common import Metadata, ObjectRef
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.engine.context import JobContext
from fedsilo.engine.store import JobIdentity
from fedsilo.methods import registry
from fedsilo.methods.method import Method
from fedsilo.wire import SigningKey, VerifyKey, make_authority
from tests.federate import silo_key
from tests.protocol.numeric import KIND
from tests.protocol.plan import SILOS

NAMES = {"averaging": "fedavg", "chain": "chain", "phases": "phases"}
"""Methods of plans -> as jobs name them."""

KINDS = ["model", KIND]


@dataclass(frozen=True)
class Job:
    """A job as aggregator and silos are started with it.

    :param agents: silo -> its agent and its silo.
    """

    identity: JobIdentity
    method: Method
    context: JobContext
    task_key: SigningKey
    keys: dict[str, SigningKey]
    agents: dict[str, tuple[SiloAgent, Silo]]

    @property
    def public_keys(self) -> dict[str, VerifyKey]:
        """Reference of a silo -> its public key."""
        return {str(silo): self.keys[name].verify_key for name, (_, silo) in self.agents.items()}


@contextmanager
def methods_known() -> Iterator[None]:
    """The model's methods are installed."""
    here = "tests.protocol.numeric"
    known = registry._entry_points() | {
        "chain": EntryPoint("chain", f"{here}:Chain", registry.GROUP),
        "phases": EntryPoint("phases", f"{here}:Phases", registry.GROUP),
    }
    with mock.patch.object(registry, "_entry_points", lambda: known):
        yield


@functools.cache
def job_of(method: str, deadline: int) -> Job:
    """A job of two silos and two rounds, in which one silo is enough at the deadline.

    :param deadline: of a round, seconds.
    """
    spec = FederatedJobSpec.model_validate(
        {
            "method": {"name": NAMES[method]},
            "model": {"name": "mlp", "config": {"hidden": [5]}},
            "data": {"dataset": "data", "classes": 4, "inputShape": [6]},
            "training": {"rounds": 2, "device": "cpu"},
            "silos": {"refs": [{"namespace": "silos", "name": name} for name in SILOS]},
            "participation": {"roundDeadline": f"{deadline}s", "minSilos": 1},
            "evaluation": {"every": 2},
        }
    )
    with methods_known():
        bound = registry.bind(spec)
    references = tuple(str(ref) for ref in spec.silos.refs)
    keys = {name: silo_key(f"silos/{name}") for name in SILOS}
    task_key = SigningKey.from_seed(hashlib.sha256(b"task key").digest())
    identity = JobIdentity("job-uid", "modelled", spec_digest(spec), references)
    frozen = FrozenJob(
        namespace="jobs", name="modelled", uid=identity.uid, spec_digest=identity.spec_digest, spec=spec
    )
    agents = {name: (_agent(frozen, name, keys[name], task_key), _silo(name)) for name in SILOS}
    return Job(identity, bound, JobContext.of(bound, references), task_key, keys, agents)


def _silo(name: str) -> Silo:
    policy = {"payloadKinds": KINDS}
    dataset = {"name": "data", "loader": "npz", "config": {"path": "none.npz"}}
    document: dict[str, Any] = {"metadata": {"namespace": "silos", "name": name}}
    return Silo.model_validate(document | {"spec": {"datasets": [dataset], "policy": policy}})


def _agent(job: FrozenJob, name: str, key: SigningKey, task_key: SigningKey) -> SiloAgent:
    trust = TrustBundle(
        url="https://aggregator:8443",
        ca_certificate=_authority(),
        task_key=task_key.verify_key.to_text(),
        public_key=key.verify_key.to_text(),
    )
    spec = SiloAgentSpec(job=job, silo=ObjectRef(namespace="silos", name=name), trust=trust)
    return SiloAgent(metadata=Metadata(namespace="silos", name=name), spec=spec)


@functools.cache
def _authority() -> str:
    return make_authority().cert_pem.decode()
