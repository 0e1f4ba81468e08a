"""Training near the means of classes: a silo's features of a class stay close to those of all silos together.

loss_k = cross-entropy + weight mean ||f(x) - mu_y||^2, with mu_c the mean of the silos' class means by their counts, as
prototypes are in Tan et al. ("FedProto", AAAI 2022), here beside an averaged model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from fedsilo import (
    Assignment,
    BlockSum,
    CountedMean,
    Exchange,
    MethodConfig,
    Metric,
    OneModel,
    OneModelServer,
    Payload,
    Reply,
    ServerContext,
    SiloContext,
    SiloStep,
    SiloTask,
    State,
    StateTraits,
    Step,
    Sums,
    features_of,
    train_model,
)

MEANS = "class_means"
SENT_PAYLOADS = (
    Payload(MEANS, "count", (), "int64", per_class=True, combine=BlockSum()),
    Payload(MEANS, "mean", ("feature",), "float64", per_class=True, combine=CountedMean("count")),
)
"""Beside the model, for each class: a number of examples and the mean of their features, (d,)."""


class AnchoredConfig(MethodConfig):
    """What a job may set in `spec.method.config`."""

    weight: float = Field(default=0.1, ge=0, description="Of the distance to the mean of the class.")
    memory: float = Field(default=0.5, ge=0, lt=1, description="What a silo keeps of its last means.")


class AnchoredServer(OneModelServer):
    """The half that runs at the aggregator. Trees: `model`, and `means` after the first round."""

    def assign(
        self, job: ServerContext, state: State, exchange: Exchange, silos: Sequence[str]
    ) -> Mapping[str, Assignment]:
        """Broadcast the model, and the means once there are any."""
        trees = {name: name for name in ("model", "means") if name in state.trees}
        return dict.fromkeys(silos, Assignment(trees))

    def aggregate(self, job: ServerContext, state: State, exchange: Exchange, sums: Sums) -> State:
        """The mean of the models, and of each class's means, weighted by its counts."""
        combined = sums.combine(MEANS)
        means = {name: value for name, value in combined.items() if name.startswith("mean/")}
        return state.with_trees(model=sums.mean("model"), means={**state.trees.get("means", {}), **means})


@dataclass(frozen=True)
class Training:
    """The half that runs in a silo."""

    config: AnchoredConfig

    def __call__(self, silo: SiloContext, task: SiloTask, private: State) -> Reply:
        """Train near the means of the task; then send the silo's own, smoothed over its rounds."""
        reply = train_model(silo, task, private, loss=self._loss(silo, task.trees.get("means", {})))
        features = features_of(silo.model(reply.tensors), silo.train)
        moments = silo.class_moments(task, features)  # without the classes that have too few examples
        before, memory = private.trees.get("means", {}), self.config.memory
        tensors, support = dict(reply.tensors), {}
        kept = {}
        for label, of_class in moments.of.items():
            name, now = f"mean/{label}", np.asarray(of_class.mean, np.float64)
            kept[name] = memory * before[name] + (1 - memory) * now if name in before else now
            tensors |= {name: kept[name], f"count/{label}": np.array(of_class.count, np.int64)}
            support |= {name: of_class.count, f"count/{label}": of_class.count}
        # The private state stays in the silo; the next round gets it as `private`.
        after = (reply.private or private).with_trees(means={**before, **kept})
        return replace(reply, tensors=tensors, support=support, private=after)

    def _loss(self, silo: SiloContext, means: Mapping[str, np.ndarray]):
        """A function of a model, a batch's inputs and its labels, (n,)."""
        import torch  # here and not above: a guard reads the declaration, and has no torch
        from torch.nn import functional

        classes, width = silo.signature.classes, silo.signature.feature
        goals, known = torch.zeros(classes, width), torch.zeros(classes)
        for name, mean in means.items():
            label = int(name.removeprefix("mean/"))
            goals[label], known[label] = torch.tensor(mean), 1

        def loss(model, inputs, labels):
            features = model.features(inputs)
            goal, has_goal = goals.to(features)[labels], known.to(features)[labels]
            distance = has_goal * (features - goal).square().sum(dim=1)
            return (
                functional.cross_entropy(model.classifier(features), labels)
                + self.config.weight * distance.mean()
            )

        return loss


class AnchoredFedAvg(OneModel):
    """Declaration of the method: what silos send beside the model, and what they keep."""

    name = "anchored"
    title = "Training near the class means of all silos"
    citation = "Y. Tan et al. FedProto: Federated Prototype Learning across Heterogeneous Clients. AAAI 2022."
    keeps = StateTraits("the model and the means of classes", "its own means of classes")
    Config = AnchoredConfig
    config: AnchoredConfig

    def steps(self) -> Mapping[str, Step]:
        """What may leave a silo: what is not declared here is refused there and at the aggregator."""
        return {"train": Step((Payload("model"), *SENT_PAYLOADS), (Metric("loss"),))}

    def server(self) -> AnchoredServer:
        """The half at the aggregator, which has no settings."""
        return AnchoredServer()

    def silo(self) -> Mapping[str, SiloStep]:
        """What answers each step."""
        return {"train": Training(self.config)}
