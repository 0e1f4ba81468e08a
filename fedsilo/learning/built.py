"""What is known of a job's network once it was built: here, or in a process of its own that ends.

An aggregator asks nothing else of the network than this and its initial weights, and both need PyTorch. In a process
that has not imported it, and may never need it again, that process does so:

    python -m fedsilo.learning.built [WEIGHTS]

It reads a job's specification from standard input, as JSON, and answers with one line of it: signature and parts, or
what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import DataInvalid, FedsiloError, ManifestInvalid, MethodError
from fedsilo.learning.parameters import ParameterPartition, parts_of
from fedsilo.learning.seeding import derive_seed
from fedsilo.process import importing_for_good
from fedsilo.tasks.registry import bind
from fedsilo.wire import ModelSignature, write_tensors

ERRORS = {error.reason: error for error in (ManifestInvalid, DataInvalid, MethodError)}
"""What can be wrong with a network, by reason."""


@dataclass(frozen=True)
class BuiltNetwork:
    """A job's network, without its numbers.

    :param signature: of the whole model.
    :param parts: of the model; None where all of it is shared.
    """

    signature: ModelSignature
    parts: ParameterPartition | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("shared", "frozen", "local")
        parts = self.parts and {name: sorted(getattr(self.parts, name)) for name in names}
        return {"signature": self.signature.to_dict(), "parts": parts}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> BuiltNetwork:
        """Read a network that `to_dict` has written as plain values."""
        signature, parts = ModelSignature.from_dict(document["signature"]), document["parts"]
        names = tuple(tensor.name for tensor in signature.tensors)
        divided = {name: frozenset(found) for name, found in (parts or {}).items()}
        return cls(signature, ParameterPartition(names, **divided) if parts else None)


def built_here(spec: FederatedJobSpec, weights: Path | None = None) -> BuiltNetwork:
    """Build the job's network in this process.

    :param weights: file that gets the initial weights, drawn from the job's seed.
    :raises ManifestInvalid: when model, inputs and parts do not fit each other.
    :raises MethodError: when the model's factory fails, or gives no network for the job, or one that begins with NaN.
    """
    from fedsilo.learning.constants import require_finite_state
    from fedsilo.learning.models import build_module, signature, to_tree

    seed = derive_seed(spec.training.seed, "model")
    module = build_module(spec.model, spec.data, seed, spec.task)
    if spec.model.initial_weights is None:
        require_finite_state(module)
    found = BuiltNetwork(
        signature(module, bind(spec.task, spec.data)), parts_of(spec.model.parameters, module)
    )
    if weights is not None:
        write_tensors(to_tree(module), weights)
    return found


def built_apart(spec: FederatedJobSpec, weights: Path | None = None) -> BuiltNetwork:
    """Build the job's network in a process of its own, which has ended when this returns.

    :param weights: as for `built_here`.
    :raises ManifestInvalid: as for `built_here`, as is `MethodError`.
    :raises OSError: when the weights cannot be written.
    :raises FedsiloError: when that process was killed.
    """
    # -P: the current directory does not come first, where its files would stand in for Python's own.
    command = [
        sys.executable,
        "-P",
        "-m",
        "fedsilo.learning.built",
        *([] if weights is None else [str(weights)]),
    ]
    document = spec.model_dump_json(by_alias=True, exclude_none=True)
    ended = subprocess.run(command, input=document.encode(), stdout=subprocess.PIPE, check=False)
    if ended.returncode != 0:
        raise FedsiloError(
            f"the process that builds the job's network ended with exit code {ended.returncode}; see the log, and give "
            "the aggregator more memory if the system has killed it"
        )
    answer = json.loads(ended.stdout)
    if "errno" in answer:
        raise OSError(answer["errno"], answer["message"], answer["path"])
    if "reason" in answer:
        raise ERRORS[answer["reason"]](answer["message"])
    return BuiltNetwork.from_dict(answer)


def main() -> None:
    """Build the network of a specification on standard input, and write its description to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a job's code prints is no answer
    with importing_for_good():
        from fedsilo.learning.devices import prepare_torch

    spec = FederatedJobSpec.model_validate_json(sys.stdin.buffer.read())
    prepare_torch(spec.training.threads)
    try:
        answer = built_here(spec, Path(sys.argv[1]) if len(sys.argv) > 1 else None).to_dict()
    except OSError as error:
        answer = {"errno": error.errno, "message": error.strerror, "path": str(error.filename)}
    except tuple(ERRORS.values()) as error:
        reason = next(reason for reason, kind in ERRORS.items() if isinstance(error, kind))
        answer = {"reason": reason, "message": str(error)}
    print(json.dumps(answer), file=answers, flush=True)
    # Tidying the interpreter up takes longer than the system does to take everything back.
    os._exit(0)


if __name__ == "__main__":
    main()
