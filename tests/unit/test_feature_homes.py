"""A feature has one home: who imports its folder's modules from outside is counted, and the counts only fall."""

from __future__ import annotations

from collections import defaultdict

import grimp

from fedsilo.transforms.order import ORDER

PACKAGES = ("fedsilo", "fedsilo_operator", "fedsilo_aggregator", "fedsilo_agent")

READERS = {
    "best_model": {"fedsilo.engine.status", "fedsilo.verification.chain", "fedsilo.verification.replay"},
    "evaluation": {"fedsilo.silo.policy"},  # which metrics need a payload that the policy refuses
    "preprocessing": {"fedsilo.local.baseline"},
    "secure_sum": {
        "fedsilo.cli.cluster.offer",
        "fedsilo.verification.chain",
        "fedsilo_agent.guard.audit",
    },
    "third_party": {
        "fedsilo.dashboard.contract",
        "fedsilo.silo.policy",
        "fedsilo.validation",
        "fedsilo_operator.job.checks",
    },
    "update_noise": {"fedsilo.cli.methods", "fedsilo.silo.budget_figures"},
}
"""Feature -> modules outside of its folder and of `order.py` that import from it; of the others there are none."""


def test_who_knows_a_feature_is_listed() -> None:
    graph, found = grimp.build_graph(*PACKAGES), defaultdict(set)
    homes = [kind.__module__.removesuffix(".declaration") for kind in ORDER]
    for home in homes:
        for module in graph.find_descendants(home):
            for importer in graph.find_modules_that_directly_import(module):
                if not importer.startswith(f"{home}.") and importer not in (
                    "fedsilo",
                    "fedsilo.transforms.order",
                ):
                    found[home.rpartition(".")[2]].add(importer)
    assert len(homes) == 11
    assert dict(found) == READERS
    assert max(map(len, found.values())) <= 4
