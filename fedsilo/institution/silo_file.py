"""`silo.yaml`, in which the institution says what it offers and permits, with what its people have decided."""

from __future__ import annotations

import logging
from pathlib import Path

from fedsilo.api.loading import load_document
from fedsilo.api.silo import Silo
from fedsilo.api.silo_status import HubAddress, SiloStatus
from fedsilo.errors import FedsiloError, ManifestInvalid
from fedsilo.files.durable import write_durably
from fedsilo.institution.approvals import merge_approvals, read_approvals
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.silo.shared_data import shared_data

log = logging.getLogger("fedsilo.silo")

TEMPLATE = """\
# What silo {silo} offers and permits; docs/manifests.md describes every field. Only you write this file.
# fedsilo silo serve follows it: a dataset or rule that changes counts from then on.
apiVersion: fedsilo.io/v1alpha1
kind: Silo
metadata:
  namespace: {namespace}
  name: {name}
spec:
  # At least one. Jobs ask for a dataset by its name; relative paths start from this directory.
  datasets: []
  # - name: images
  #   loader: imagefolder          # or npz, sklearn:digits, torchvision:Name, python:module:function
  #   config: {{path: data/images}}
  #   classes: 10
  #   inputShape: [3, 64, 64]
  policy:
    # A person runs fedsilo silo approve before a job begins.
    manualApproval: true
    # A class with fewer samples is left out of every per-class quantity.
    minSamplesPerClass: 5
    # methods: [fedavg]              # null: any that is installed
    # jobNamespaces: [federation]    # namespaces at the hub; null: any
    # payloadKinds: [model]          # what may leave; docs/manifests.md has the list
    # maxRounds: 100
    # maxBytesPerJob: 2Gi
    # notAfter: 2027-01-31T00:00:00Z
"""


def write_template(directory: SiloDirectory, silo: str) -> bool:
    """Write a `silo.yaml` to begin with, unless there is one; whether it did."""
    if directory.silo_file.exists():
        return False
    namespace, _, name = silo.partition("/")
    text = TEMPLATE.format(silo=silo, namespace=namespace, name=name)
    write_durably(directory.silo_file, text.encode())
    return True


def read_silo(directory: SiloDirectory, silo: str, public_key: str, hub: HubAddress | None = None) -> Silo:
    """The Silo as the institution wrote it, with its key.

    :param silo: `namespace/name` under which it joined.
    :param hub: to which its guards connect; needed to decide about jobs.
    :raises ManifestFaults: with all faults of the file at once.
    :raises ManifestInvalid: when it is another silo's.
    """
    path = directory.silo_file
    found = load_document(path, Silo)
    if str(found) != silo:
        raise ManifestInvalid(
            f"{path}: metadata: is of silo {found}, and this directory joined as {silo}; write that name and namespace"
        )
    if found.spec.remote is not None:
        raise ManifestInvalid(
            f"{path}: spec.remote: is the hub's to write; remove it and list the silo's datasets"
        )
    policy = found.spec.policy
    decided = merge_approvals(policy.approvals, read_approvals(directory))
    spec = found.spec.model_copy(update={"policy": policy.model_copy(update={"approvals": decided})})
    return found.model_copy(update={"spec": spec, "status": SiloStatus(public_key=public_key, hub=hub)})


class WatchedSilo:
    """The Silo as the files say it now; while they cannot be understood, as they said it last.

    :param member: as whom the silo has joined which hub.
    :param public_key: with which it signs.
    :ivar silo: the Silo.
    :ivar fault: what is wrong with the files; empty when nothing is.
    :raises FedsiloError: as `read_silo`, when the files cannot be understood at first.
    """

    def __init__(self, directory: SiloDirectory, member: SiloIdentity, public_key: str) -> None:
        self._directory, self._member, self._public_key = directory, member, public_key
        self._contents = self._read()
        self.silo = self._load_silo()
        self.fault = ""

    def changed(self) -> bool:
        """Whether the Silo is another than before, after looking at the files again."""
        contents = self._read()
        if contents == self._contents:
            return False
        self._contents = contents
        try:
            self.silo = self._load_silo()
        except (OSError, FedsiloError) as error:
            self.fault = " ".join(str(error).split())
            log.error("%s; what it said before still counts", self.fault)
            return False
        if self.fault:
            log.info("%s: is understood again", self._directory.silo_file)
        self.fault = ""
        return True

    def _load_silo(self) -> Silo:
        silo = read_silo(self._directory, self._member.silo, self._public_key, self._member.hub)
        for text in shared_data(silo, self._directory.root, here=True):
            log.warning("%s: %s", self._directory.silo_file, text)
        return silo

    def _read(self) -> tuple[bytes, bytes]:
        return _content(self._directory.silo_file), _content(self._directory.approvals)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
