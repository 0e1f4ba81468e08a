"""What a job with a robust rule asks for that the rule cannot give."""

from __future__ import annotations

from fedsilo.api.aggregation import MAX_SILOS, RuleSpec
from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.methods.method import Method, averaging_of
from fedsilo.methods.reading import Mean, annotation_missing

UNWEIGHTED_RULES = frozenset({"median", "trimmed-mean", "krum", "multi-krum"})
"""Rules in which every silo counts as one; in the others it counts by its weight."""


def check_rule(method: Method) -> list[Finding]:
    """Faults of a job's `spec.aggregation.rule`: a method whose aggregate is no mean of models, or too few silos."""
    spec, field = method.spec, "spec.aggregation.rule"
    rule = spec.aggregation.rule
    if rule is None:
        return []
    found: list[Finding] = []
    if method.reads is not Mean:
        problem = f"has no meaning for method {method.name}, whose aggregate is not just the mean of the silos' models"
        remedy = "remove it, or use a method such as fedavg"
        if annotation := annotation_missing(type(method).server, Mean):
            remedy = f"{annotation}; otherwise {remedy}"
        found.append((f"{field}.name", rule.name, problem, remedy))
    found += _check_weights(method, rule)
    silos = len(spec.silos.refs)
    if not silos:
        return found  # a selector's, which are counted in every round
    if silos > MAX_SILOS:
        problem = (
            f"is for {MAX_SILOS} silos at most, whose updates are all open at once, and there are {silos}"
        )
        found.append((f"{field}.name", rule.name, problem, "name fewer silos, or remove it"))
    answers = spec.participation.quorum(spec.participation.sample_size(silos))
    if answers < rule.fewest_silos:
        problem = (
            f"needs {rule.fewest_silos} answers in a round, and {answers} are enough for the job's quorum"
        )
        remedy = "have more silos, and participation.minSilos raised, or a smaller byzantine"
        found.append((f"{field}.name", rule.name, problem, remedy))
    if rule.selected is not None and rule.byzantine is not None:
        most = answers - rule.byzantine - 2
        if answers >= rule.fewest_silos and rule.selected > most:
            problem = (
                f"is more than the {most} models that {answers} answers leave beside byzantine and two more"
            )
            found.append((f"{field}.selected", rule.selected, problem, f"use {most} or less"))
    return found


def _check_weights(method: Method, rule: RuleSpec) -> list[Finding]:
    """The fault of weights by which a silo that lies about its samples counts for more than the rule stands."""
    field, named = "spec.aggregation.weights", method.spec.aggregation.weights
    if rule.name in UNWEIGHTED_RULES:
        problem = f"has no meaning for {rule.name}, in which silos count alike: whoever lies may lie about his samples"
        return [(field, named, problem, "use uniform, or remove it")] if named == "samples" else []
    if averaging_of(method) == "uniform":
        return []
    problem = f"is by samples that silos state: in {rule.name} a silo that states enough of them outvotes all others"
    return [(field, named or ABSENT_VALUE, problem, "write uniform")]
