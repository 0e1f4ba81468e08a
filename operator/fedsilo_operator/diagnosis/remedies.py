"""What to do about a pod that does not run, by component: which field of which object decides."""

from __future__ import annotations

from fedsilo.api.observed import Object
from fedsilo_operator.diagnosis.pods import component
from fedsilo_operator.objects import AGENT, labels_of, ref_of

CHECK = "look at the trainer's network"
"""What the first container of a trainer's pod is called here."""

_GUARD_IMAGE = "correct spec.agent.guardImage of the Silo and delete Jobs {agent}-trainer and {agent}-guard"

REMEDIES = {
    "aggregator": {
        "image": "name another in spec.aggregator.image of a new job",
        "resources": "change spec.aggregator.resources in a new job",
        "storage": "spec.aggregator.storage of the job",
        "dataset": "spec.aggregator.datasets of the job",
        "memory": "Raise the memory limit in spec.aggregator.resources of a new job.",
    },
    "trainer": {
        "image": "name another in spec.agents.image of a new job",
        "resources": "change spec.agent (resources, nodeSelector, tolerations) of the Silo and delete Job {job}",
        "storage": "spec.agent.storage of the Silo",
        "dataset": "spec.datasets of the Silo",
        "memory": "Raise the memory limit in spec.agent.resources of the Silo, or make spec.training.batchSize smaller "
        "in a new job.",
    },
    "guard": {
        "image": _GUARD_IMAGE,
        "resources": "change spec.agent (nodeSelector, tolerations) of the Silo and delete Job {job}",
        "storage": "spec.agent.storage of the Silo",
        "dataset": "spec.datasets of the Silo",
        "memory": "Use a node with more memory: a guard has no limit of its own.",
    },
    CHECK: {
        "image": _GUARD_IMAGE,
    },
}
"""Component, or network check -> what to do about its image, resources and memory; which fields name its volumes.

A Job of a silo that is deleted is made anew from the Silo as it is then; a job's own spec cannot be changed.
"""


def what_to_do(job: Object, about: str, who: str | None = None) -> str:
    """The remedy of a Job's component, with the names of its objects.

    :param about: image, resources, storage, dataset or memory.
    :param who: component, or the check of the network; the Job's own component where none is named.
    """
    return REMEDIES[who or component(job)][about].format(
        job=ref_of(job).name, agent=labels_of(job).get(AGENT, "")
    )
