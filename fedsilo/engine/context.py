"""What the engine hands to the server half of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from fedsilo.engine.initial_weights import require_tensors_of
from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.errors import MethodError
from fedsilo.learning.built import BuiltNetwork, built_here
from fedsilo.learning.parameters import ParameterPartition
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import ServerContext
from fedsilo.methods.method import Method
from fedsilo.methods.state import StoredTree, Tree
from fedsilo.wire import open_blob

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from fedsilo.learning.examples import Examples


@dataclass(frozen=True)
class JobContext(ServerContext):
    """The server half's view of the job.

    :param parts: of the model; None where all of it is shared.
    :param initial: its initial weights; None where they are drawn from the job's seed.
    :param drawn: file of the weights that were drawn, as long as it is there; without it, they are drawn again.
    :param public: the job's public dataset, where its method reads one.
    :param prepared: a network -> the network as it takes raw values.
    """

    parts: ParameterPartition | None = None
    initial: StoredTree | Tree | None = None
    drawn: Path | None = None
    public: PublicDataset | None = None
    prepared: Callable[[nn.Module], nn.Module] | None = None

    @classmethod
    def of(
        cls,
        method: Method,
        silos: Sequence[str],
        initial: StoredTree | Tree | None = None,
        built: BuiltNetwork | None = None,
        drawn: Path | None = None,
        public: PublicDataset | None = None,
    ) -> JobContext:
        """The job that the method is bound to.

        :param silos: references `namespace/name`, in the job's order.
        :param initial: the file of `spec.model.initialWeights`, see `initial_weights`, or what takes its place.
        :param built: its network; built here when None.
        :param drawn: file of the initial weights that were drawn when it was built, if they were kept.
        :param public: its public dataset, see `PublicDataset.of`.
        :raises DataInvalid: when that file is not of this model.
        :raises ManifestInvalid: when the parts of the model are not as the job describes them.
        :raises MethodError: when the model has not the parts that the method works on.
        """
        spec = method.spec
        if spec.model.initial_weights is not None and initial is None:
            raise MethodError("spec.model.initialWeights: the file was not opened before the job's context")
        found = built_here(spec) if built is None else built
        whole, parts = found.signature, found.parts
        if method.tasks.needs_features and not whole.feature:
            raise MethodError(
                f"spec.model.name: {spec.model.name!r}: has no .encoder and .classifier, on whose feature method "
                f"{method.name} works; give it those, or use another method"
            )
        if isinstance(initial, StoredTree):
            require_tensors_of(whole, initial)
        shared = parts.signature(whole) if parts else whole
        return cls(spec, shared, tuple(silos), parts, initial, drawn, public)

    @override
    def initial_model(self) -> Tree:
        """What silos share of the job's model, with its initial weights, the same for every silo."""
        whole = self.initial_weights()
        tree = whole.load() if isinstance(whole, StoredTree) else whole
        return {tensor.name: tree[tensor.name] for tensor in self.signature.tensors}

    def initial_weights(self) -> StoredTree | Tree:
        """The whole model with its initial weights."""
        if self.initial is not None:
            return self.initial
        if self.drawn is not None and self.drawn.exists():
            return open_blob(self.drawn).tree()
        from fedsilo.learning.models import initial_model

        return initial_model(self.spec)

    @override
    def public_examples(self) -> Examples:
        """The job's public dataset, read on first use."""
        if self.public is None:
            name = self.spec.aggregation.public_dataset
            raise MethodError(
                f"spec.aggregation.publicDataset: {name}: is not there; run this where its files are"
            )
        return self.public.examples

    @override
    def module(self, tree: Mapping[str, np.ndarray]) -> nn.Module:
        """The job's network with these weights, where the aggregator scores models too."""
        from fedsilo.engine.scoring import network
        from fedsilo.learning.devices import pick_device

        module = network(self.spec, tree)
        module = module if self.prepared is None else self.prepared(module)
        return module.to(pick_device(self.spec.training.device))

    @override
    def seed(self, *purpose: str | int) -> int:
        """Seed for a purpose, derived from the job's seed."""
        return derive_seed(self.spec.training.seed, *purpose)
