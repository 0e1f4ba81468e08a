"""A person of an institution decides: what is shown, what is written, and that nothing else is touched."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.proposal import proposal_digest
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.cli.cluster import approval
from fedsilo.cli.cluster.offer import describe, frozen_spec, proposal_of
from fedsilo.cli.main import main
from tests.unit.cli.fake_kubectl import FakeKubectl, forbidden
from tests.unit.cli.objects import UID, agent, condition, proposal, proposed_agent, remote_agent, silo

GOLDEN = Path(__file__).with_name("golden") / "approve.txt"
UNSEEN_AGENT = agent(
    "north", condition("Admitted", "False", "ApprovalPending", "Silo north: a person must decide.")
)
NORTH = proposed_agent(UNSEEN_AGENT)
DIGEST = NORTH["spec"]["job"]["specDigest"]
PROPOSAL = proposal_digest(proposal(NORTH))
NAME = NORTH["metadata"]["name"]
OTHER_DECISION = {"job": "another", "specDigest": "cd" * 32, "decision": "Refused", "note": "no"}
MANUAL = {"manualApproval": True}
CCVR = {
    "method": {"name": "ccvr", "config": {}},
    "agents": {"image": "registry.example/trainer@sha256:" + "e" * 64},
}
CONFLICT = (
    'Error from server (Conflict): Operation cannot be fulfilled on silos.fedsilo.io "north": it was modified'
)


def entry(decision: str = "Approved", **more: str) -> dict[str, str]:
    return {
        "job": UID,
        "specDigest": DIGEST,
        "proposal": PROPOSAL,
        "decision": decision,
        "note": "",
        **more,
    }


def cluster(kubectl: FakeKubectl, *agents: dict[str, Any], policy: dict[str, Any] | None = None) -> None:
    kubectl.items("get silos.fedsilo.io --namespace silo-north --output=json", silo("north", policy))
    kubectl.items("get siloagents.fedsilo.io --namespace silo-north --output=json", *agents)
    kubectl.answer("patch .*", {})


def decide(*arguments: str) -> int:
    return main([*arguments, "-n", "silo-north", "--yes"])


def written_patches(kubectl: FakeKubectl) -> list[dict[str, Any]]:
    """The patches of the Silo."""
    calls = [call.words for call in kubectl.calls if call.words[0] == "patch"]
    for words in calls:
        assert list(words[1:-1]) == [
            *("silos.fedsilo.io", "north", "--namespace", "silo-north", "--type=merge"),
            "--field-manager=fedsilo-approval",
        ]
    patches = [json.loads(words[-1].removeprefix("--patch=")) for words in calls]
    for patch in patches:
        # When it was decided is that moment, in every new entry.
        *_, new = patch["spec"]["policy"]["approvals"]
        assert timedelta(0) <= datetime.now(UTC) - parse_timestamp(new.pop("time")) < timedelta(minutes=5)
    return patches


@pytest.mark.parametrize("named", [NAME, UID])
@pytest.mark.parametrize("policy", [None, {}, MANUAL, {"approvals": []}])
def test_the_first_decision_needs_no_list_to_be_there(
    kubectl: FakeKubectl, named: str, policy: dict[str, Any] | None
) -> None:
    cluster(kubectl, NORTH, policy=policy)
    assert decide("approve", named) == 0
    assert written_patches(kubectl) == [
        {"metadata": {"resourceVersion": "41"}, "spec": {"policy": {"approvals": [entry()]}}}
    ]


@pytest.mark.parametrize("command", ["approve", "refuse"])
def test_who_decides_is_recorded_where_the_cluster_says_it(kubectl: FakeKubectl, command: str) -> None:
    kubectl.json(
        "auth whoami --output=json", {"status": {"userInfo": {"username": "dr.meyer@north.example"}}}
    )
    cluster(kubectl, NORTH)
    assert decide(command, NAME) == 0
    (patch,) = written_patches(kubectl)
    (new,) = patch["spec"]["policy"]["approvals"]
    assert new["by"] == "dr.meyer@north.example"


@pytest.mark.parametrize(
    "answer", ["", "{}", '{"status": {"userInfo": {"username": ""}}}', "[1]", '{"status": 1}']
)
def test_a_cluster_that_does_not_say_who_decides_hinders_nobody(kubectl: FakeKubectl, answer: str) -> None:
    kubectl.answer("auth whoami --output=json", {"out": answer})
    cluster(kubectl, NORTH)
    assert decide("approve", NAME) == 0
    (patch,) = written_patches(kubectl)
    assert patch["spec"]["policy"] == {"approvals": [entry()]}


@pytest.mark.parametrize("command", ["approve", "refuse"])
@pytest.mark.parametrize("named", [NAME, UID])
def test_nothing_is_decided_here_for_an_institution_outside_of_the_cluster(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], command: str, named: str
) -> None:
    put_remote_silo(kubectl)
    assert decide(command, named) == 2
    assert written_patches(kubectl) == []
    said = capsys.readouterr().err
    assert (
        f"{named}: silo-north/north decides outside of this cluster; ask it to run `fedsilo silo approve"
        in said
    )


def test_the_list_says_of_a_job_that_waits_outside_of_the_cluster_who_decides(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    put_remote_silo(kubectl)
    assert main(["approve", "-n", "silo-north"]) == 0
    _, row, note = capsys.readouterr().out.splitlines()
    assert row.startswith(NAME)
    assert note.startswith("silo-north/north decides outside of this cluster")


def put_remote_silo(kubectl: FakeKubectl) -> None:
    """The institution of the Silo is outside of the cluster, and has a person decide."""
    where = silo("north")
    where["spec"] = {"remote": {}}
    found = proposed_agent(remote_agent("north", phase="ApprovalPending"))
    kubectl.items("get silos.fedsilo.io --namespace silo-north --output=json", where)
    kubectl.items("get siloagents.fedsilo.io --namespace silo-north --output=json", found)


def test_other_decisions_stay_and_an_earlier_one_about_the_job_is_replaced(kubectl: FakeKubectl) -> None:
    stale = entry(specDigest="ab" * 32)
    cluster(kubectl, NORTH, policy={**MANUAL, "approvals": [stale, OTHER_DECISION]})
    assert decide("refuse", NAME, "--note", "not this year") == 0
    (patch,) = written_patches(kubectl)
    assert patch["spec"]["policy"] == {"approvals": [OTHER_DECISION, entry("Refused", note="not this year")]}


@pytest.mark.parametrize(
    ("before", "command", "note", "writes"),
    [
        ("Approved", "approve", "", 0),
        ("Approved", "approve", "agreed", 1),
        ("Approved", "refuse", "", 1),
        ("Refused", "refuse", "", 0),
    ],
)
def test_the_same_decision_is_written_once(
    kubectl: FakeKubectl, before: str, command: str, note: str, writes: int
) -> None:
    cluster(kubectl, NORTH, policy={"approvals": [entry(before, note="because")]})
    assert decide(command, NAME, "--note", note) == 0
    assert len(written_patches(kubectl)) == writes


def test_what_another_writes_meanwhile_is_kept(kubectl: FakeKubectl) -> None:
    kubectl.answer("patch .*", {"err": f"{CONFLICT}\n", "code": 1}, {})
    later = silo("north", {"approvals": [OTHER_DECISION]})
    later["metadata"]["resourceVersion"] = "42"
    kubectl.json("get silos.fedsilo.io north .*", later)
    cluster(kubectl, NORTH)
    assert decide("approve", NAME) == 0
    assert written_patches(kubectl)[1] == {
        "metadata": {"resourceVersion": "42"},
        "spec": {"policy": {"approvals": [OTHER_DECISION, entry()]}},
    }


def test_writers_without_end_are_an_error(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.refuse("patch .*", CONFLICT)
    kubectl.json("get silos.fedsilo.io north .*", silo("north"))
    cluster(kubectl, NORTH)
    assert decide("approve", NAME) == 1
    assert f"was changed by others {approval.MAX_TRIES} times meanwhile" in capsys.readouterr().err


def test_a_full_list_is_refused_with_the_remedy(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    full = [{**OTHER_DECISION, "job": str(number)} for number in range(approval.MAX_APPROVALS)]
    cluster(kubectl, NORTH, policy={"approvals": full})
    assert decide("approve", NAME) == 2
    assert "remove those of jobs that are gone" in capsys.readouterr().err


def test_what_waits_is_listed(kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]) -> None:
    done = agent("north", condition("Finished", "True", "Finished"), name="done")
    cluster(kubectl, NORTH, done, policy=MANUAL)
    assert main(["approve", "-n", "silo-north"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["siloagent", "job", "silo", "method", "age"]
    assert row.split()[:4] == [NAME, "research/digits", "north", "fedavg"]


@pytest.mark.parametrize("policy", [None, {"approvals": [entry()], **MANUAL}, {"manualApproval": False}])
def test_nothing_waits_where_no_person_is_asked(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], policy: dict[str, Any] | None
) -> None:
    cluster(kubectl, NORTH, policy=policy)
    assert main(["refuse", "-n", "silo-north"]) == 0
    assert capsys.readouterr().out == "no job waits for a decision in this namespace\n"


def test_what_is_decided_on_is_described() -> None:
    unknown = agent("north", spec={"method": {"name": "theirs", "config": {}}})
    offers = (UNSEEN_AGENT, proposed_agent(agent("north", spec=CCVR)), proposed_agent(unknown))
    shown = [describe(found, frozen_spec(found), proposal_of(found)) for found in offers]
    assert "\n\n".join(shown) == GOLDEN.read_text().rstrip("\n")


def test_what_transforms_leave_of_a_model_is_named_and_not_invented() -> None:
    asked = agent("north", spec={"transforms": [{"name": "signs"}]})
    text = describe(asked, frozen_spec(asked), None)
    assert "\ntransforms  signs\n" in text
    assert "not known here: transform signs is not installed; the guard holds to policy.payloadKinds" in text


def with_members(key: str = "A") -> dict[str, Any]:
    """A job in which silos know each other's keys."""
    found = agent("north", spec={"aggregation": {"secure": True}})
    names = ("north", "east", "south", "west")
    found["spec"]["trust"]["members"] = [
        {"silo": f"silo-{name}/{name}", "publicKey": f"ed25519:{key * 43}="} for name in names
    ]
    return proposed_agent(found)


def test_the_silos_whose_keys_would_be_trusted_are_counted_and_their_keys_have_a_digest() -> None:
    one, other = (proposal(with_members(key)).members for key in "AC")
    text = describe(with_members(), frozen_spec(with_members()), proposal_of(with_members()))
    assert f"\nmembers     4 silos, digest of their keys {one}\n" in text
    assert None not in (one, other)
    assert one != other
    assert "members" not in describe(NORTH, frozen_spec(NORTH), proposal_of(NORTH))


@pytest.mark.parametrize(
    ("participation", "expected"),
    [
        ({"minSilos": 4}, "the aggregator learns sums over all 4 silos"),
        (
            {"minSilos": 3},
            "over 3 to 4 of 4 silos; where two differ by one silo, it sees what that one has sent",
        ),
    ],
)
def test_whether_sums_may_leave_a_silo_out_is_said(participation: dict[str, int], expected: str) -> None:
    job = agent("north", spec={"aggregation": {"secure": True}, "participation": participation})
    assert expected in describe(job, frozen_spec(job), None)
    plain = agent("north")
    assert "sums" not in describe(plain, frozen_spec(plain), None)


def test_a_proposal_about_the_keys_of_other_silos_is_not_decided_on(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = with_members()
    forged["status"]["proposal"] = with_members("C")["status"]["proposal"]
    cluster(kubectl, forged)
    assert decide("approve", NAME) == 5
    assert "find out who changed it" in capsys.readouterr().err
    assert written_patches(kubectl) == []


def test_one_pass_is_a_pass() -> None:
    once = agent("north", spec={"training": {"rounds": 5, "localEpochs": 1}})
    text = describe(once, frozen_spec(once), None)
    assert "rounds  5, with 1 pass over the data in each\n" in text


def test_a_job_that_says_steps_is_described_by_them() -> None:
    steps = agent("north", spec={"training": {"rounds": 5, "localSteps": 50, "gradientAccumulation": 2}})
    text = describe(steps, frozen_spec(steps), None)
    assert "rounds  5, with 50 steps of 64 examples in each\n" in text


def test_a_specification_with_another_digest_is_not_decided_on(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = agent("north")
    forged["spec"]["job"]["spec"]["training"]["rounds"] = 9000
    cluster(kubectl, forged)
    assert decide("approve", NAME) == 5
    assert "do not decide on it" in capsys.readouterr().err
    assert written_patches(kubectl) == []


def test_a_specification_of_a_later_version_is_not_decided_on(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    later = agent("north")
    later["spec"]["job"]["spec"]["novelty"] = 1
    cluster(kubectl, later)
    assert decide("approve", NAME) == 2
    assert "use the fedsilo of the release that runs the silo" in capsys.readouterr().err
    assert written_patches(kubectl) == []


def test_nobody_approves_what_the_operator_has_not_named_yet(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster(kubectl, UNSEEN_AGENT)
    assert decide("approve", NAME) == 2
    assert "status.proposal: is missing" in capsys.readouterr().err
    assert decide("refuse", NAME) == 0
    (patch,) = written_patches(kubectl)
    (refusal,) = patch["spec"]["policy"]["approvals"]
    assert "proposal" not in refusal


@pytest.mark.parametrize("name", ["url", "address", "authority", "taskKey", "specDigest", "uid"])
def test_a_proposal_of_something_else_is_not_decided_on(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    forged = deepcopy(NORTH)
    found = forged["status"]["proposal"]
    found[name] = f"{found[name][:-1]}{'0' if found[name][-1] != '0' else '1'}"
    if name == "taskKey":
        found[name] = "ed25519:" + "C" * 43 + "="
    cluster(kubectl, forged)
    assert decide("approve", NAME) == 5
    assert "find out who changed it" in capsys.readouterr().err
    assert written_patches(kubectl) == []


def test_an_approval_of_another_proposal_is_replaced(kubectl: FakeKubectl) -> None:
    cluster(kubectl, NORTH, policy={**MANUAL, "approvals": [entry(proposal="ab" * 32)]})
    assert decide("approve", NAME) == 0
    (patch,) = written_patches(kubectl)
    assert patch["spec"]["policy"] == {"approvals": [entry()]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digits-nort"], f"in namespace silo-north; did you mean {NAME}?"),
        ([UID], "the silos north, annex are in that job; choose one with --silo"),
        ([UID, "--silo", "anex"], "--silo anex: is not in that job; did you mean annex?"),
        ([NAME, "--note", "x" * 1025], "--note: has 1,025 characters; shorten it to 1,024"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    annex = agent("north", name="digits-annex-5e6f7a8b")
    annex["spec"]["silo"] = {"namespace": "silo-north", "name": "annex"}
    kubectl.items("get silos.fedsilo.io .*", silo("north"), {**silo("north"), "metadata": {"name": "annex"}})
    cluster(kubectl, NORTH, annex)
    assert decide("approve", *arguments) == 2
    assert said in capsys.readouterr().err
    assert written_patches(kubectl) == []


def test_a_silo_of_several_in_the_namespace_is_chosen(kubectl: FakeKubectl) -> None:
    annex = agent("north", name="digits-annex-5e6f7a8b")
    annex["spec"]["silo"] = {"namespace": "silo-north", "name": "annex"}
    kubectl.items("get silos.fedsilo.io .*", silo("north"), {**silo("north"), "metadata": {"name": "annex"}})
    cluster(kubectl, NORTH, annex)
    assert decide("approve", UID, "--silo", "north") == 0
    assert len(written_patches(kubectl)) == 1


def test_without_the_right_to_patch_the_right_is_named(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.refuse("patch .*", forbidden("patch", "silos", namespace="silo-north"))
    cluster(kubectl, NORTH)
    assert decide("approve", NAME) == 5
    assert "may not patch silos.fedsilo.io in namespace silo-north" in capsys.readouterr().err


def test_nobody_is_asked_where_there_is_no_terminal(kubectl: FakeKubectl) -> None:
    cluster(kubectl, NORTH)
    code = f"import sys; from fedsilo.cli.main import main; sys.exit(main(['approve', {NAME!r}, '-n', 'silo-north']))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == (
        "fedsilo: standard input is no terminal, so nobody can be asked; add --yes to decide\n"
    )
    assert written_patches(kubectl) == []


@pytest.mark.parametrize(("answer", "writes"), [("y", 1), ("yes", 1), ("n", 0), ("", 0)])
def test_a_person_is_asked(kubectl: FakeKubectl, answer: str, writes: int) -> None:
    cluster(kubectl, NORTH)
    person, terminal = pty.openpty()
    code = f"import sys; from fedsilo.cli.main import main; sys.exit(main(['approve', {NAME!r}, '-n', 'silo-north']))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=terminal, stdout=subprocess.PIPE) as process:
        os.write(person, f"{answer}\n".encode())
        assert process.stdout
        shown = process.stdout.read().decode()
    os.close(person)
    os.close(terminal)
    assert process.returncode == 0
    assert "Approve this job? [y/N]" in shown
    assert ("nothing was decided" in shown) == (writes == 0)
    assert len(written_patches(kubectl)) == writes
