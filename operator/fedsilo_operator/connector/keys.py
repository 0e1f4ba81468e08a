"""The institution's keys, as its Silo and its Secret have them."""

from __future__ import annotations

import logging

from fedsilo.api.observed import Object, status_of
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Cache, Cluster, ClusterError, NotFound
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import SECRET, SILO_KIND, Ref
from fedsilo_operator.silo import key_secret, succession

log = logging.getLogger("fedsilo.connector")


class SiloKeys:
    """The keys of one silo, read anew each time."""

    def __init__(self, cluster: Cluster, cache: Cache, silo: Ref) -> None:
        self._cluster = cluster
        self._cache = cache
        self._silo = silo

    @property
    def public_key(self) -> str | None:
        """The public key that the Silo's status publishes; None before there is one."""
        silo = self._cache.get(SILO_KIND, self._silo)
        return None if silo is None else status_of(silo).get("publicKey")

    async def published_key(self) -> SigningKey | None:
        """The one whose public half is published, once there is one."""
        public_key = self.public_key
        return None if public_key is None else await self.own_key(public_key)

    async def own_key(self, public_key: str) -> SigningKey | None:
        """The key with this public half, where the Secret has it and can be read."""
        name = Ref(self._silo.namespace, SIGNING_KEY)
        try:
            return key_secret.key_of(await self._cluster.get(SECRET, name), public_key)
        except NotFound:
            return None  # the condition Ready says so
        except ClusterError as error:
            log.warning("Secret %s cannot be read now: %s", name, error)
            return None

    def announcement(self) -> Object | None:
        """What the hub has yet to take of the silo's keys."""
        silo = self._cache.get(SILO_KIND, self._silo)
        return None if silo is None else succession.announcement(silo)
