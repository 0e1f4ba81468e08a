"""The wire format consists of signed messages, tensor blocks and the contract that they keep (docs/wire.md).

Torch-free. Digests are SHA-256, those of large content BLAKE3 where a job says so; msgpack carries no tensor through
memory, and nothing is ever unpickled.

Certificates are imported on first use: X.509 takes longer to import than all else here, and few processes issue any.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsilo.payload_kinds import KINDS
from fedsilo.wire.blob import (
    BlobReader,
    BlobRef,
    MappedTensors,
    blob_parts,
    copy_blob,
    open_blob,
    write_blob,
    write_tensors,
)
from fedsilo.wire.checker import AcceptedUpdate, ExpectedUpdate, UpdateCheck
from fedsilo.wire.contract import Contract, EncodedTensor, ExpectedBlock
from fedsilo.wire.envelope import MAX_ENVELOPE_BYTES, open_envelope, seal
from fedsilo.wire.header import TensorEntry, UpdateHeader, update_digest
from fedsilo.wire.hub import HUB, MAX_HUB_BYTES, open_agents, seal_agents
from fedsilo.wire.keys import PROVENANCE, REQUEST, TASK, UPDATE, SigningKey, VerifyKey, sharing
from fedsilo.wire.problems import STATUS, problem_document
from fedsilo.wire.provenance import ChainEnd, open_chain, seal_chain
from fedsilo.wire.request import claimed_sender, sign_request, verify_request
from fedsilo.wire.signed_document import (
    DECISION,
    LEAVING,
    OFFER,
    ROTATION,
    SUCCESSION,
    sign_statement,
    verify_statement,
)
from fedsilo.wire.task import (
    FINISH,
    BlobLink,
    Scalar,
    Task,
    open_task,
    require_algorithm,
    seal_task,
    task_digest,
)
from fedsilo.wire.tensors import DTYPES, MAX_TENSOR_BYTES, ModelSignature, TensorSpec, Tree, spec_of, specs_of
from fedsilo.wire.update import UpdateReader, open_signed_part, open_update, signed_part, stored_digest
from fedsilo.wire.writer import UpdateWriter, lay_out, new_update

if TYPE_CHECKING:
    from fedsilo.wire.certificates import Authority, issue_server, make_authority

__all__ = [
    "DECISION",
    "DTYPES",
    "FINISH",
    "HUB",
    "KINDS",
    "LEAVING",
    "MAX_ENVELOPE_BYTES",
    "MAX_HUB_BYTES",
    "MAX_TENSOR_BYTES",
    "OFFER",
    "PROVENANCE",
    "REQUEST",
    "ROTATION",
    "STATUS",
    "SUCCESSION",
    "TASK",
    "UPDATE",
    "AcceptedUpdate",
    "Authority",
    "BlobLink",
    "BlobReader",
    "BlobRef",
    "ChainEnd",
    "Contract",
    "EncodedTensor",
    "ExpectedBlock",
    "ExpectedUpdate",
    "MappedTensors",
    "ModelSignature",
    "Scalar",
    "SigningKey",
    "Task",
    "TensorEntry",
    "TensorSpec",
    "Tree",
    "UpdateCheck",
    "UpdateHeader",
    "UpdateReader",
    "UpdateWriter",
    "VerifyKey",
    "blob_parts",
    "claimed_sender",
    "copy_blob",
    "issue_server",
    "lay_out",
    "make_authority",
    "new_update",
    "open_agents",
    "open_blob",
    "open_chain",
    "open_envelope",
    "open_signed_part",
    "open_task",
    "open_update",
    "problem_document",
    "require_algorithm",
    "seal",
    "seal_agents",
    "seal_chain",
    "seal_task",
    "sharing",
    "sign_request",
    "sign_statement",
    "signed_part",
    "spec_of",
    "specs_of",
    "stored_digest",
    "task_digest",
    "update_digest",
    "verify_request",
    "verify_statement",
    "write_blob",
    "write_tensors",
]

CERTIFICATES = frozenset({"Authority", "issue_server", "make_authority"})


def __getattr__(name: str) -> Any:
    if name not in CERTIFICATES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("fedsilo.wire.certificates"), name)
