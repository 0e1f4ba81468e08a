"""Sums that nobody can open: right for every drop-out that leaves the threshold, and closed to a hostile aggregator."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import PolicyRefused, Problem, QuorumLost
from fedsilo.secure_aggregation.aggregator_side import add_masked, agreed_broadcast, unmask
from fedsilo.secure_aggregation.masks import add_mask
from fedsilo.secure_aggregation.messages import SURVIVORS, KeyAnnouncement, Unmasking, survivors_message
from fedsilo.secure_aggregation.silo_side import SiloSide, own_mask, pair_mask
from tests.unit.secure_aggregation.parties import (
    KEYS,
    MODEL,
    Sum,
    complete_sum,
    context_of,
    names,
    vectors_of,
)


def sum_of(vectors: dict[str, np.ndarray], silos: list[str]) -> list[int]:
    total = np.zeros(len(next(iter(vectors.values()))), np.uint64)
    add_masked(total, [vectors[name] for name in silos])
    return [int(value) for value in total]


def subsets(silos: list[str], least: int) -> list[list[str]]:
    return [list(some) for size in range(least, len(silos) + 1) for some in combinations(silos, size)]


@pytest.mark.parametrize("count", [3, 4, pytest.param(5, marks=pytest.mark.thorough)])
def test_every_drop_out_that_leaves_the_threshold_at_every_stage(count: int) -> None:
    vectors, least = vectors_of(count, size=2), max(3, count // 2 + 1)
    tried = 0
    for announced in subsets(names(count), least):
        for shared in subsets(announced, least):
            for masked in subsets(shared, least):
                for last in subsets(masked, least):
                    found = complete_sum(count, [announced, shared, masked, last, last], vectors)
                    assert found.total().tolist() == sum_of(vectors, masked)
                    tried += 1
    assert tried == {3: 1, 4: 17, 5: 181}[count]


@settings(max_examples=12)
@given(st.data())
def test_sums_of_up_to_fifty_silos_with_drop_outs_and_restarts(data: st.DataObject) -> None:
    count = data.draw(st.integers(5, 14))
    threshold = data.draw(st.integers(count // 2 + 1, count))
    vectors, stages, left = vectors_of(count, seed=count), [], names(count)
    for _ in range(5):
        gone = data.draw(st.sets(st.sampled_from(left), max_size=len(left) - threshold))
        left = [name for name in left if name not in gone]
        stages.append(left)
    found = Sum.of(count, threshold)
    found.announce(stages[0])
    found.resume()
    found.share(stages[1])
    found.resume()
    found.mask(stages[2], vectors)
    found.resume()
    found.confirm(stages[3])
    found.resume()
    found.reveal(stages[4])
    assert found.total().tolist() == sum_of(vectors, stages[2])


@pytest.mark.thorough
def test_fifty_silos() -> None:
    vectors = vectors_of(50, size=3)
    everyone = names(50)
    found = complete_sum(50, [everyone, everyone[1:], everyone[3:], everyone[5:], everyone[5:40]], vectors)
    assert found.total().tolist() == sum_of(vectors, everyone[3:])


def test_a_request_that_is_repeated_after_a_crash_gets_the_same_bytes() -> None:
    found, vectors = Sum.of(4), vectors_of(4)
    found.announce(names(4))
    first = found.silos["silos/s0"]
    again, sealed = first.shares(found.announced)
    kept = SiloSide.from_dict(found.context, "silos/s0", again.to_dict())
    assert kept.shares(found.announced)[1] == sealed
    found.share(names(4))
    own = found.sealed["silos/s0"]
    after, masked = kept.mask_vector(found.announced, own, vectors["silos/s0"], MODEL)
    repeated = SiloSide.from_dict(found.context, "silos/s0", after.to_dict())
    assert (repeated.mask_vector(found.announced, own, vectors["silos/s0"], MODEL)[1] == masked).all()


def test_a_second_answer_under_one_mask_is_refused() -> None:
    found, vectors = Sum.of(4), vectors_of(4)
    found.announce(names(4))
    found.share(names(4))
    found.mask(names(4), vectors)
    silo = found.silos["silos/s1"]
    others = {name: one for name, one in found.announced.items() if name != "silos/s3"}
    for answer in (
        lambda: silo.shares(others),
        lambda: silo.mask_vector(found.announced, found.sealed["silos/s1"], vectors["silos/s2"], MODEL),
        lambda: silo.mask_vector(
            found.announced, dict(list(found.sealed["silos/s1"].items())[:2]), vectors["silos/s1"], MODEL
        ),
        lambda: silo.mask_vector(
            found.announced, found.sealed["silos/s1"], vectors["silos/s1"], b"another model".ljust(32)
        ),
    ):
        with pytest.raises(PolicyRefused, match="this silo has answered with other"):
            answer()
    survivors = names(4)
    after, _ = silo.confirmation(found.sealed["silos/s1"], survivors, KEYS[1])
    with pytest.raises(PolicyRefused, match="this silo has answered with other survivors"):
        after.confirmation(found.sealed["silos/s1"], survivors[:3], KEYS[1])
    with pytest.raises(PolicyRefused, match="these are not the survivors that this silo answered"):
        after.unmasking(found.announced, found.sealed["silos/s1"], survivors[:3], {})


def test_two_lists_of_survivors_are_never_both_confirmed() -> None:
    """The aggregator tells one half that silo 0 survived and the other half that it did not."""
    found, vectors = Sum.of(4), vectors_of(4)
    found.announce(names(4))
    found.share(names(4))
    found.mask(names(4), vectors)
    lists = {name: names(4) if place < 2 else names(4)[1:] for place, name in enumerate(names(4))}
    signed = {}
    for name, survivors in lists.items():
        found.silos[name], signed[name] = found.silos[name].confirmation(
            found.sealed[name], survivors, found.key(name)
        )
    for name, survivors in lists.items():
        agreeing = {other: signed[other] for other in names(4) if lists[other] == survivors}
        with pytest.raises(
            QuorumLost, match="2 silos confirmed the survivors and were sent the same, and 3 are"
        ):
            found.silos[name].unmasking(found.announced, found.sealed[name], survivors, agreeing)
        forged = agreeing | {other: signed[other] for other in survivors if lists[other] != survivors}
        with pytest.raises(Problem) as refused:
            found.silos[name].unmasking(found.announced, found.sealed[name], survivors, forged)
        assert refused.value.code == "signature-invalid"


def test_keys_that_are_not_signed_for_this_sum_are_refused() -> None:
    found = Sum.of(4)
    found.announce(names(4))
    silo = found.silos["silos/s0"]
    other = SiloSide.begin(context_of(4, exchange="r00002-train"), "silos/s1")
    of_another_round = other.announcement(KEYS[1])
    of_the_aggregator = SiloSide.begin(found.context, "silos/s1").announcement(KEYS[40])
    for swapped in (of_another_round, of_the_aggregator, found.announced["silos/s2"]):
        with pytest.raises(Problem) as refused:
            silo.shares(found.announced | {"silos/s1": swapped})
        assert refused.value.code == "signature-invalid"
    with pytest.raises(Problem, match="own keys are not among"):
        silo.shares({name: one for name, one in found.announced.items() if name != "silos/s0"})
    with pytest.raises(QuorumLost, match="2 silos announced keys, and 3 are needed"):
        silo.shares({name: found.announced[name] for name in ("silos/s0", "silos/s1")})


def test_shares_that_were_swapped_on_their_way_are_refused() -> None:
    found, vectors = Sum.of(4), vectors_of(4)
    found.announce(names(4))
    found.share(names(4))
    sealed = dict(found.sealed["silos/s0"])
    for wrong in (
        sealed | {"silos/s1": sealed["silos/s2"]},
        sealed | {"silos/s1": found.sealed["silos/s2"]["silos/s1"]},
        sealed | {"silos/s1": bytes(len(sealed["silos/s1"]))},
    ):
        with pytest.raises(Problem, match="were not sealed for this silo in this sum"):
            found.silos["silos/s0"].mask_vector(found.announced, wrong, vectors["silos/s0"], MODEL)


def test_shares_that_are_wrong_are_found_out() -> None:
    vectors = vectors_of(4)
    found = complete_sum(4, [names(4), names(4), names(4)[:3], names(4)[:3], names(4)[:3]], vectors)
    honest = found.unmaskings["silos/s1"]
    for wrong in (
        Unmasking(honest.keys, {**honest.seeds, "silos/s0": bytes(66)}),
        Unmasking({"silos/s3": bytes(66)}, honest.seeds),
    ):
        found.unmaskings["silos/s1"] = wrong
        with pytest.raises(Problem, match="are of no secret that it announced; nothing is unmasked"):
            found.total()


def unmasked_vector(found: Sum, silo: str, colluding: str, masks: bool = True) -> np.ndarray:
    """What an aggregator with everything it was sent, and with all secrets of a colluding silo, can do about a vector.

    It takes off the mask that the two have in common, and all that the shares it was given yield.
    """
    vector = found.masked[silo].copy()
    if not masks:
        return vector
    secret = pair_mask(found.silos[colluding].mask_key, found.announced[silo].mask_key, found.context, MODEL)
    first = found.context.point(silo) < found.context.point(colluding)
    add_mask(vector, secret, -1 if first else 1)
    return vector


def test_an_aggregator_with_one_colluding_silo_does_not_see_a_vector_and_does_without_masks() -> None:
    vectors = vectors_of(4, size=1000)
    everyone = names(4)
    found = complete_sum(4, [everyone] * 5, vectors)
    secret = vectors["silos/s0"]
    seen = unmasked_vector(found, "silos/s0", "silos/s3")
    # Each number is as likely to be right as any other: none of a thousand is.
    assert not (seen == secret).any()
    # Even its own mask, whose seed the aggregator has after the last round, leaves the masks with honest silos.
    seeds = {who: one.seeds for who, one in found.unmaskings.items()}
    assert all("silos/s0" in given for given in seeds.values())
    total = np.zeros(1000, np.uint64)
    add_masked(total, found.masked.values())
    unmask(total, found.context, found.announced, everyone, everyone, found.unmaskings, MODEL)
    assert not (seen - total == secret).any()
    # The same attack on what is sent without masks succeeds, so that it can.
    found.masked = vectors
    assert (unmasked_vector(found, "silos/s0", "silos/s3", masks=False) == secret).all()


def test_a_silo_that_is_said_to_have_dropped_out_keeps_its_own_mask() -> None:
    """The aggregator has the vector of silo 0, and claims that it dropped out to get the key of its masks."""
    vectors = vectors_of(4, size=1000)
    everyone = names(4)
    found = complete_sum(4, [everyone, everyone, everyone, [], []], vectors)
    found.survivors = everyone[1:]
    found.confirm(everyone[1:])
    found.reveal(everyone[1:])
    assert all("silos/s0" in one.keys and "silos/s0" not in one.seeds for one in found.unmaskings.values())
    vector = found.masked["silos/s0"].copy()
    for other in everyone[1:]:
        secret = pair_mask(
            found.silos["silos/s0"].mask_key, found.announced[other].mask_key, found.context, MODEL
        )
        add_mask(vector, secret, -1)
    assert not (vector == vectors["silos/s0"]).any()
    add_mask(vector, own_mask(found.silos["silos/s0"].seed, found.context), -1)
    assert (vector == vectors["silos/s0"]).all()


def test_a_silo_that_is_said_to_have_shared_only_afterwards_is_refused() -> None:
    """The aggregator hides silo 3 from silo 0 while it masks, and then has silo 2 drop out.

    Of silo 0's masks one would be silo 2's, whose key is unmasked, and one that of silo 1, which colludes.
    """
    found, vectors = Sum.of(4), vectors_of(4)
    found.announce(names(4))
    found.share(names(4))
    every = found.sealed["silos/s0"]
    found.sealed["silos/s0"] = {name: shares for name, shares in every.items() if name != "silos/s3"}
    found.mask(names(4), vectors)
    survivors = ["silos/s0", "silos/s1", "silos/s3"]
    silo = found.silos["silos/s0"]
    with pytest.raises(PolicyRefused, match="these are not the sharers that this silo answered"):
        silo.confirmation(every, survivors, KEYS[0])
    with pytest.raises(Problem, match="survivors are silos that shared"):
        silo.confirmation(found.sealed["silos/s0"], survivors, KEYS[0])
    with_others, signature = silo.confirmation(found.sealed["silos/s0"], names(4)[:3], KEYS[0])
    confirmed = {"silos/s0": signature}
    with pytest.raises(PolicyRefused, match="these are not the sharers that this silo answered"):
        with_others.unmasking(found.announced, every, names(4)[:3], confirmed)


CRAFTED_MODEL = b"a model with foreseeable answers".ljust(32)


@pytest.mark.parametrize("count", [4, 6, 10])
def test_masks_of_silos_that_were_sent_different_things_do_not_cancel(count: int) -> None:
    """One silo has the model, and as many as the threshold one whose answers are known: these help to unmask it."""
    threshold = count - 1
    vectors, everyone = vectors_of(count, size=1000), names(count)
    found = Sum.of(count, threshold)
    found.announce(everyone)
    found.share(everyone)
    found.mask(everyone[:1], vectors)
    found.mask(everyone[1:], vectors, sent=CRAFTED_MODEL)
    found.survivors = everyone
    found.confirm(everyone)
    with pytest.raises(
        QuorumLost, match=f"1 silos confirmed the survivors and were sent the same, and {threshold} are"
    ):
        found.reveal(everyone[:1])
    found.reveal(everyone[1:])
    assert agreed_broadcast(found.context, everyone, found.confirmed) == CRAFTED_MODEL
    for claimed in (MODEL, CRAFTED_MODEL):
        total = np.zeros(1000, np.uint64)
        add_masked(total, found.masked.values())
        unmask(total, found.context, found.announced, everyone, everyone, found.unmaskings, claimed)
        known = np.zeros(1000, np.uint64)
        add_masked(known, [vectors[name] for name in everyone[1:]])
        seen = (total - known).view(np.int64).astype(np.float64)
        assert abs(np.corrcoef(seen, vectors["silos/s0"].view(np.int64).astype(np.float64))[0, 1]) < 0.15


def confirming(found: Sum, silo: str, sent: bytes) -> bytes:
    """A confirmation that a silo was sent something, whatever it was sent."""
    message = survivors_message(found.context, found.survivors, sent)
    return sent + found.key(silo).sign(SURVIVORS, message)


def test_a_silo_that_says_it_was_sent_something_else_does_not_end_the_sum() -> None:
    vectors, everyone = vectors_of(4), names(4)
    found = complete_sum(4, [everyone] * 5, vectors)
    honest = found.total()
    for silo in everyone:
        confirmed = dict(found.confirmed)
        found.confirmed[silo] = confirming(found, silo, CRAFTED_MODEL)
        assert (found.total() == honest).all()
        found.confirmed = confirmed


def test_without_a_threshold_of_silos_that_were_sent_the_same_nothing_is_unmasked() -> None:
    everyone = names(4)
    found = complete_sum(4, [everyone] * 5, vectors_of(4))
    for silo in everyone[:2]:
        found.confirmed[silo] = confirming(found, silo, CRAFTED_MODEL)
    with pytest.raises(
        QuorumLost, match=r"^secure aggregation: 2 silos state .* and 3 are needed that were sent"
    ):
        found.total()


@pytest.mark.parametrize(("count", "threshold"), [(2, 2), (3, 1), (3, 2), (4, 2), (5, 6)])
def test_two_silos_or_a_threshold_of_half_are_refused(count: int, threshold: int) -> None:
    with pytest.raises(Problem, match=r"of fewer than 3|must be more than half"):
        context_of(count, threshold)


@pytest.mark.parametrize("size", [0, 159, 161])
def test_announcements_are_read_strictly(size: int) -> None:
    with pytest.raises(Problem) as refused:
        KeyAnnouncement.from_bytes(bytes(size))
    assert refused.value.code == "malformed"


@pytest.mark.parametrize("size", [0, 131, 133, 198])
def test_unmaskings_are_read_strictly(size: int) -> None:
    with pytest.raises(Problem) as refused:
        Unmasking.from_bytes(bytes(size), ["a", "b"], ["a"])
    assert refused.value.code == "malformed"
