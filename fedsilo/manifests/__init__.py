"""FederatedJob, Silo and SiloAgent: their fields, their files, and what to say when something is wrong."""

from __future__ import annotations

from fedsilo.manifests.agent import SiloAgent, SiloAgentSpec
from fedsilo.manifests.digest import spec_digest
from fedsilo.manifests.faults import Fault, ManifestFaults
from fedsilo.manifests.job import FederatedJob, FederatedJobSpec
from fedsilo.manifests.loading import Federation, load, load_document
from fedsilo.manifests.silo import DatasetSpec, PartitionSpec, Silo, SiloSpec
from fedsilo.manifests.status import FederatedJobStatus

__all__ = [
    "DatasetSpec",
    "Fault",
    "FederatedJob",
    "FederatedJobSpec",
    "FederatedJobStatus",
    "Federation",
    "ManifestFaults",
    "PartitionSpec",
    "Silo",
    "SiloAgent",
    "SiloAgentSpec",
    "SiloSpec",
    "load",
    "load_document",
    "spec_digest",
]
