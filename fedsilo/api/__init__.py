"""FederatedJob, Silo and SiloAgent: their fields, their files, and what to say when something is wrong."""

from __future__ import annotations

from fedsilo.api.agent import SiloAgent, SiloAgentSpec
from fedsilo.api.datasets import DatasetSpec, PartitionSpec
from fedsilo.api.digest import spec_digest
from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.loading import JobManifest, load, load_document
from fedsilo.api.silo import Silo, SiloSpec
from fedsilo.api.status import FederatedJobStatus

__all__ = [
    "DatasetSpec",
    "Fault",
    "FederatedJob",
    "FederatedJobSpec",
    "FederatedJobStatus",
    "JobManifest",
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
