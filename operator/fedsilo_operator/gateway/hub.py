"""What the hub knows of institutions outside of the cluster, and what they may change of it.

It reads Silos and SiloAgents from a cache and writes statuses only.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from fedsilo.api.agent import SiloAgentStatus
from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem
from fedsilo.silo.offer import read_offer
from fedsilo.wire import SigningKey, VerifyKey, seal_agents
from fedsilo_operator.cluster.interface import Cache, Cluster, ClusterError
from fedsilo_operator.gateway.forwarding import Route
from fedsilo_operator.gateway.registration import Registration, participation_problem
from fedsilo_operator.gateway.writing import MANAGER, write_status
from fedsilo_operator.institution import remote_of
from fedsilo_operator.job.gateway import ROUTE
from fedsilo_operator.objects import JOB_UID, SILO_AGENT, SILO_KIND, Kind, Ref, is_deleted, ref_of, silo_of

log = logging.getLogger("fedsilo.gateway")

SEEN_SECONDS = 120.0
"""Interval at which it is written that a silo was heard of: each write wakes the operator."""

_REVISION = re.compile(r"(?P<version>[0-9]{1,16})-(?P<digest>[0-9a-f]{32})")

_REPORTED_FIELDS = frozenset(field.alias or name for name, field in SiloAgentStatus.model_fields.items())


@dataclass(frozen=True)
class HubIdentity:
    """By what silos find and recognise the hub.

    :param url: address of the gateway, as institutions reach it.
    :param ca: PEM of the authority of its certificate; None for the system's.
    """

    key: SigningKey
    url: str
    ca: str | None = None

    @property
    def id(self) -> str:
        """What a proof of a silo names in place of a job."""
        return self.key.verify_key.key_id

    def identity_fields(self) -> dict[str, str]:
        """The hub's address, key and authority, as a Silo's status has them for invitations."""
        described = {"url": self.url, "key": self.key.verify_key.to_text()}
        return described | ({} if self.ca is None else {"caCertificate": self.ca})


@dataclass(frozen=True)
class SealedRevision:
    """What a silo is told: the revision, and the sealed document that holds it."""

    revision: str
    sealed: bytes


class Hub:
    """The hub's side of what institutions ask.

    :param cache: Silos and SiloAgents as the watches have seen them.
    :param version: the API server's version of all SiloAgents that the cache is up to.
    :ivar registration: who may ask.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        identity: HubIdentity,
        version: Callable[[], int],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._cache = cache
        self._version = version
        self._now = now
        self.registration = Registration(cluster, cache, identity.id, now)
        self._seen: dict[Ref, datetime] = {}

    def silos(self) -> Iterator[Object]:
        """All Silos of institutions outside of the cluster."""
        return (silo for silo in self._cache.select(SILO_KIND) if remote_of(silo) is not None)

    def route(self, job: str, silo: str) -> Route | None:
        """The way of a silo to the aggregator of a job: by its own SiloAgent, which says nothing about other silos."""
        namespace, _, name = silo.partition("/")
        ref = Ref(namespace, name)
        observed = self._cache.get(SILO_KIND, ref)
        if observed is None or remote_of(observed) is None:
            return None
        for agent in self._cache.select(SILO_AGENT, namespace=namespace, labels={JOB_UID: job}):
            spec = agent["spec"]
            if silo_of(agent) == ref and spec["job"]["uid"] == job and ROUTE in spec:
                key = VerifyKey.from_text(spec["trust"]["publicKey"])
                return Route(
                    spec[ROUTE]["url"], spec[ROUTE]["caCertificate"], key, participation_problem(observed)
                )
        return None

    def agents(self, silo: Ref, after: str) -> SealedRevision | None:
        """All SiloAgents of a silo as the hub signs them; None if the silo knows them already, or knows a later state.

        :param after: revision that the silo has. Another gateway may have told it, one that knows more than this one.
        """
        found = [
            {"name": ref_of(agent).name, "uid": uid_of(agent), "spec": _disclosed_spec(agent["spec"])}
            for agent in self._cache.select(SILO_AGENT, namespace=silo.namespace)
            if silo_of(agent) == silo and not is_deleted(agent)
        ]
        version, digest = self._version(), hashlib.sha256(canonical_json({"agents": found})).hexdigest()[:32]
        known = _REVISION.fullmatch(after)
        if known is not None and (known["digest"] == digest or int(known["version"]) > version):
            return None
        revision = f"{version}-{digest}"
        document = {
            "protocol": 1,
            "hub": self.identity.id,
            "silo": str(silo),
            "version": version,
            "revision": revision,
            "agents": found,
        }
        return SealedRevision(revision, seal_agents(document, self.identity.key))

    async def report(self, silo: Ref, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Take over what a silo says of one of its SiloAgents; fields of a later version are left out.

        :raises Problem: `unknown-agent`, `malformed` or `unreachable`.
        """
        agent = self._cache.get(SILO_AGENT, Ref(silo.namespace, name))
        if agent is None or silo_of(agent) != silo or uid_of(agent) != uid:
            raise Problem("unknown-agent", f"silo {silo} has no SiloAgent {name[:80]} with uid {uid[:80]}")
        known = {field: value for field, value in status.items() if field in _REPORTED_FIELDS}
        try:
            SiloAgentStatus.model_validate(known)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            place = ".".join(map(str, fault["loc"]))
            raise Problem("malformed", f"status.{place}: {fault['msg']}") from None
        if "conditions" in known:
            # Whether it is heard of is not its own to say.
            known["conditions"] = [
                one for one in known["conditions"] if one["type"] != ConditionType.CONNECTED
            ]
        await self._write_status(SILO_AGENT, agent, known, MANAGER)

    async def offer(self, silo: Ref, statement: Mapping[str, Any]) -> None:
        """Publish what a silo offers, if it has signed it.

        :raises Problem: as `read_offer`, or `unreachable`.
        """
        read_offer(statement, str(silo), self.registration.registered_key(silo).to_text())
        observed = self._observed_silo(silo)
        if status_of(observed).get("offer") != statement:
            await self._write_status(SILO_KIND, observed, {"offer": dict(statement)}, f"{MANAGER}-offer")

    async def record_contact(self, silo: Ref) -> None:
        """Note that a silo was heard of, now and then; that it cannot be written holds up nothing."""
        now, last = self._now(), self._seen.get(silo)
        if last is not None and now - last < timedelta(seconds=SEEN_SECONDS):
            return
        self._seen[silo] = now
        try:
            seen = {"lastSeen": timestamp(now)}
            await write_status(
                self._cluster,
                SILO_KIND,
                self._observed_silo(silo),
                seen,
                f"{MANAGER}-seen",
                whatever_else=True,
            )
        except (ClusterError, Problem) as error:
            log.warning("silo %s: when it was seen cannot be written: %s", silo, error)

    async def describe(self, silo: Object) -> None:
        """Write into a Silo's status how its institution finds the hub, for the invitation."""
        described = self.identity.identity_fields()
        if status_of(silo).get("hub") != described and not is_deleted(silo):
            try:
                await write_status(
                    self._cluster, SILO_KIND, silo, {"hub": described}, f"{MANAGER}-hub", whatever_else=True
                )
            except ClusterError as error:
                log.warning("silo %s: the hub's address cannot be written: %s", ref_of(silo), error)

    def _observed_silo(self, silo: Ref) -> Object:
        observed = self._cache.get(SILO_KIND, silo)
        if observed is None:
            raise Problem("unknown-sender", f"silo {silo} is not known here any more")
        return observed

    async def _write_status(self, kind: Kind, obj: Object, status: Mapping[str, Any], manager: str) -> None:
        try:
            await write_status(self._cluster, kind, obj, status, manager)
        except ClusterError as error:
            raise Problem("unreachable", f"{kind} {ref_of(obj)} cannot be written now: {error}") from error


def _disclosed_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a silo is told of its agent: nothing of what is behind the gateway."""
    return {name: value for name, value in spec.items() if name != ROUTE}
