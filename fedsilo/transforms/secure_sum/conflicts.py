"""What a job with `spec.aggregation.secure` asks for that sums cannot give, each with what would."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.aggregation import MAX_SILOS
from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import count_text
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Sums, Updates, annotation_missing
from fedsilo.secure_aggregation.messages import FEWEST_SILOS
from fedsilo.transforms.secure_sum.steps import fewest_summed

FIELD = "spec.aggregation.secure"

DOCS = "docs/secure-aggregation.md says which methods do with sums"


def check_secure(method: Method, everyone: bool) -> Iterator[Finding]:
    """Faults of a job whose aggregator is to see sums only.

    :param everyone: whether there are exchanges with all silos.
    """
    spec = method.spec
    if not spec.aggregation.secure:
        return
    yield from _check_method(method)
    yield from method.check_sums()
    yield from _check_silos(method, everyone)
    yield from _check_rule(spec)
    if spec.upload.is_encoded:
        problem = "has no meaning with secure aggregation: a masked update cannot be compressed"
        yield "spec.communication.upload", spec.upload.encoding, problem, "remove it, or remove " + FIELD


def _check_method(method: Method) -> Iterator[Finding]:
    name, remedy = method.spec.method.name, f"remove it, or use a method such as fedavg; {DOCS}"
    if method.reads is Updates:
        if annotation := annotation_missing(type(method).server, Sums):
            remedy = f"{annotation}; otherwise {remedy}"
        yield FIELD, True, f"has no meaning for {name}, whose aggregator reads single silos' updates", remedy


def _check_silos(method: Method, everyone: bool) -> Iterator[Finding]:
    spec = method.spec
    silos = len(spec.silos.refs)
    if not silos:
        problem = "leaves open whose keys count, and silos mask their updates under each other's keys"
        yield "spec.silos.selector", ABSENT_VALUE, problem, "name the silos in spec.silos.refs"
        return
    if silos > MAX_SILOS:
        yield (
            "spec.silos.refs",
            silos,
            f"are more than {MAX_SILOS} silos, each of which sends every other a message",
            "name fewer silos",
        )
    for asked in (spec.participation.sample_size(silos), *([silos] if everyone else [])):
        if findings := list(_check_sum(method, asked)):
            yield from findings
            return


def _check_sum(method: Method, drawn: int) -> Iterator[Finding]:
    """Faults of exchanges that so many silos are asked in."""
    spec, least = method.spec, method.spec.participation.min_silos
    fewest, known, enough = fewest_summed(method), _what_is_known(method), drawn // 2 + 1
    remedy = f"use {max(fewest, enough)} or more"
    if enough > spec.participation.sample_size(len(spec.silos.refs)):
        remedy = "remove it, so that all of them must answer, or use a larger spec.participation.fraction"
    if drawn < fewest:
        problem = f"is asked of {count_text(drawn, 'silo')} in each round, and {known}"
        yield FIELD, True, problem, f"have {fewest} silos or more, or a larger spec.participation.fraction"
    elif spec.participation.quorum(drawn) < fewest:
        problem = f"permits a sum over {spec.participation.quorum(drawn)} silos, and {known}"
        yield "spec.participation.minSilos", least, problem, remedy
    elif 2 * spec.participation.quorum(drawn) <= drawn:
        problem = (
            f"is no more than half of the {drawn} silos that are asked together, so that two lists of survivors might "
            "both be unmasked, and their difference shows one silo"
        )
        yield "spec.participation.minSilos", least, problem, remedy


def _what_is_known(method: Method) -> str:
    """From sums of too few silos, a clause."""
    fewest = fewest_summed(method)
    if fewest == FEWEST_SILOS:
        return f"from a sum of fewer than {FEWEST_SILOS} each knows what the other sent"
    return (
        f"in {method.name} two sums with different weights are seen, from which of fewer than {fewest} "
        "silos one knows what the others sent"
    )


def _check_rule(spec: FederatedJobSpec) -> Iterator[Finding]:
    """Rules that look at single updates, such as `median`; clipping is done by guards before they mask."""
    rule = spec.aggregation.rule
    if rule is None:
        return
    if rule.name != "norm-clipping":
        problem = "compares the updates of single silos, and with secure aggregation nobody sees one"
        remedy = "use norm-clipping, which each silo's guard does by itself, or remove it"
        yield "spec.aggregation.rule.name", rule.name, problem, remedy
    elif spec.download.is_encoded:
        problem = "leaves guards without the model itself, from which they clip their silos' changes"
        yield (
            "spec.communication.download.encoding",
            spec.download.encoding,
            problem,
            "remove it, or remove the rule",
        )
