"""What a silo leaves out of an update is sent with a later one, exactly once, and no method sees any of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings.check import require_decodable_update
from fedsilo.encodings.registry import encoding_in, with_encoding
from fedsilo.errors import MethodError, PolicyRefused, Problem
from fedsilo.learning.models import build_model, signature
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.transforms.encoding.trainer import PHASE, RESIDUAL, encoded_reply
from fedsilo.transforms.learned import learned_names
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import Contract, ExpectedBlock, open_update
from tests.federate import bound_method, job_spec, local_silos, model_of, open_engine, runners, skewed_silos
from tests.unit.wire.examples import write

BASE = {"w": np.zeros(8, np.float32)}


def contract(shape: tuple[int, ...] = (8,), **upload: Any) -> Contract:
    """Contract of a model with one tensor to encode."""
    blocks = (ExpectedBlock("model", "w", shape, "float32"), ExpectedBlock("model", "steps", (), "int64"))
    contract = Contract(blocks)
    return with_encoding(contract, UploadSpec.model_validate(upload), learned_names(contract))


def task(phase: str = "train", **trees: Tree) -> SiloTask:
    return SiloTask("train", phase, 1, 1, 1, trees or {"model": BASE}, {})


def reply(*values: float, private: State | None = None) -> Reply:
    return Reply({"w": np.array(values, np.float32), "steps": np.array(3)}, 5, {}, private=private)


TOP = contract(encoding="topk", fraction=0.25)


def decoded_values(found: Reply) -> list[float]:
    encoding = encoding_in(TOP)
    assert encoding is not None
    tensor: list[float] = encoding.decode([found.tensors["w.indices"], found.tensors["w"]], (8,)).tolist()
    return tensor


def test_what_was_left_out_is_added_to_what_is_sent_next() -> None:
    first = encoded_reply(reply(5, 4, 3, 2, 0, 0, 0, 0), task(), State(), TOP, True)
    assert decoded_values(first) == [5, 4, 0, 0, 0, 0, 0, 0]
    assert first.tensors["steps"] == 3
    assert first.private is not None
    second = encoded_reply(reply(0, 0, 3, 0, 0, 0, 1, 0), task(), first.private, TOP, True)
    assert decoded_values(second) == [0, 0, 6, 2, 0, 0, 0, 0]
    assert second.private is not None
    assert second.private.tree(RESIDUAL)["w"].tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


def test_without_feedback_nothing_is_kept() -> None:
    found = encoded_reply(reply(5, 4, 3, 2, 0, 0, 0, 0), task(), State(), TOP, False)
    assert found.private is None


def test_a_method_s_own_state_stays_beside_it() -> None:
    own = State({"control": {"w": np.ones(8, np.float32)}}, {"rounds": 1})
    first = encoded_reply(reply(5, 4, 3, 2, 0, 0, 0, 0, private=own), task(), State(), TOP, True)
    assert first.private is not None
    assert (first.private.tree("control"), first.private.values["rounds"]) == (own.tree("control"), 1)
    # A step without tensors of the model leaves it as it is, also where the method replaces its own state.
    counts = Contract((ExpectedBlock("class_counts", "count/0", (), "int64", 0),))
    plan = JobPlan(bound_method("fedavg", communication={"upload": {"encoding": "topk", "fraction": 0.25}}))
    kept = plan.with_kept(first.private, State({}, {"rounds": 2}))
    other = encoded_reply(Reply(private=kept), task(), first.private, counts, True)
    assert other.private is not None
    assert other.private.tree(RESIDUAL) == first.private.tree(RESIDUAL)
    assert other.private.values == {"rounds": 2, PHASE: "train"}


def test_another_phase_begins_anew() -> None:
    first = encoded_reply(reply(5, 4, 3, 2, 0, 0, 0, 0), task(), State(), TOP, True)
    assert first.private is not None
    second = encoded_reply(reply(0, 0, 0, 0, 0, 0, 1, 0), task("classify"), first.private, TOP, True)
    assert decoded_values(second) == [0, 0, 0, 0, 0, 0, 1, 0]


def test_a_difference_is_taken_from_the_model_first_and_then_from_other_trees() -> None:
    found = contract(encoding="float16")
    ones, twos = {"w": np.full(8, 1, np.float32)}, {"w": np.full(8, 2, np.float32)}
    for given, sent in (
        (task(a=twos, model=ones), 4.0),
        (task(b=ones, a=twos), 3.0),
        (task(a={"w": np.ones(9, np.float32)}), 5.0),
    ):
        answer = encoded_reply(reply(*[5.0] * 8), given, State(), found, False)
        assert answer.tensors["w"].tolist() == [sent] * 8


def test_topk_without_anything_to_differ_from_is_refused() -> None:
    with pytest.raises(MethodError, match=r"'topk': the task hands out no tensor 'w'"):
        encoded_reply(reply(*range(8)), task(a={}), State(), TOP, True)


def test_a_reply_that_is_not_as_declared_is_named() -> None:
    with pytest.raises(MethodError, match=r"the reply's w is float32 of shape \(2,\); the method declares"):
        encoded_reply(reply(1, 2), task(), State(), TOP, True)


def test_what_was_not_acknowledged_is_sent_again_with_the_same_bytes(tmp_path: Path) -> None:
    spec = job_spec("fedavg", ["s0", "s1"], rounds=3, communication={"upload": {"encoding": "int8"}})
    given = runners(spec, skewed_silos(tmp_path, {"s0": [0, 1], "s1": [2, 3]}), tmp_path)
    engine = open_engine(tmp_path / "aggregator", spec)
    silos = local_silos(tmp_path, given)
    while not engine.ended:
        for silo in silos:
            if (sealed := engine.task(silo.reference)) is None:
                continue
            first = silo.sign(engine, sealed.contract, sealed.sealed).read_bytes()
            update = silo.sign(engine, sealed.contract, sealed.sealed)
            assert update.read_bytes() == first
            silo.send(engine, sealed.id, update)
        engine.settle()
    assert len(model_of(engine)) == 4
    assert silos[0].private_state.tree(RESIDUAL).keys() == model_of(engine).keys()


def test_errors_that_are_fed_back_do_not_add_up(tmp_path: Path) -> None:
    """The sum of all that was sent is off by one residual, not by one for each round."""
    rng, silo = np.random.default_rng(1), State()
    low = contract((64,), encoding="int8", block=64)
    encoding = encoding_in(low)
    assert encoding is not None
    sent, wanted, plain = np.zeros(64), np.zeros(64), np.zeros(64)
    zero = {"w": np.zeros(64, np.float32)}
    for _ in range(200):
        change = rng.normal(0.02, 0.1, 64).astype(np.float32)
        change[0] = 100  # so that a step of the scale is larger than the others
        wanted += change
        answer = encoded_reply(Reply({"w": change}), task(model=zero), silo, low, True)
        assert answer.private is not None
        silo = answer.private
        sent += encoding.decode([answer.tensors["w.scales"], answer.tensors["w"]], (64,))
        plain += encoding.decode(encoding.encode(change), (64,))
    step = 100 / 127
    assert np.abs(sent - wanted).max() < step
    assert np.abs(plain - wanted).max() > 2 * step


def test_an_update_that_cannot_be_decoded_is_refused_where_it_arrives(tmp_path: Path) -> None:
    tensors = {"w.indices": np.array([4, 4], np.uint32), "w": np.ones(2, np.float32), "steps": np.array(1)}
    blocks = [(block, tensors[block.name]) for block in TOP.blocks]
    write(tmp_path / "update", contract=TOP, metrics={}, blocks=blocks)
    with pytest.raises(Problem, match=r"block w\.indices: must ascend"):
        require_decodable_update(TOP, tmp_path / "update")
    tensors["w.indices"][1] = 5
    write(tmp_path / "update", contract=TOP, metrics={}, blocks=blocks)
    require_decodable_update(TOP, tmp_path / "update")
    with open_update(tmp_path / "update") as update:
        assert update.header.length < 300


def test_a_guard_signs_nothing_that_cannot_be_decoded(tmp_path: Path) -> None:
    spec = job_spec("fedavg", ["s0"], communication={"upload": {"encoding": "int8"}})
    honest = runners(spec, skewed_silos(tmp_path, {"s0": [0, 1]}), tmp_path)["silos/s0"]

    class HostileRunner:
        def run(self, task: SiloTask, private: State) -> Reply:
            answer = honest.run(task, private)
            for array in answer.tensors.values():
                if array.dtype == np.int8:
                    array.reshape(-1)[-1] = -128
            return answer

    engine = open_engine(tmp_path / "aggregator", spec)
    (silo,) = local_silos(tmp_path, {"silos/s0": HostileRunner()})
    sealed = engine.task(silo.reference)
    assert sealed is not None
    with pytest.raises(PolicyRefused, match=r"breaks the contract: malformed: block .*: holds -128"):
        silo.sign(engine, sealed.contract, sealed.sealed)
    assert not list(tmp_path.glob("silos.s0/**/*.update"))


@pytest.mark.parametrize(
    ("upload", "dtypes"),
    [
        ({"encoding": "int8"}, {"int8", "float32", "int64"}),
        ({"compression": "zstd"}, {"uint8", "uint32", "float32", "int64"}),
    ],
)
def test_statistics_of_batch_norm_and_other_kinds_are_sent_as_they_are(
    upload: dict[str, str], dtypes: set[str]
) -> None:
    method = bound_method(
        "creff",
        2,
        data={"inputShape": [1, 8, 8]},
        model={"name": "resnet8", "config": {"width": 2}},
        communication={"upload": upload},
    )
    model = signature(build_model(method.spec.model, method.spec.data, seed=0))
    found = JobPlan(method).contract("train", model, {})
    encoded_names = {tensor.tensor.name for tensor in found.encoded}
    for block in found.tensors:
        exact = block.kind != "model" or "running" in block.name or block.dtype != "float32"
        assert (block.name not in encoded_names) == exact, block.name
    assert {block.dtype for block in found.blocks} == dtypes
