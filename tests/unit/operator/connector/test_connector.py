"""An institution's own cluster follows its hub: enrolment, agents, decisions, and a hub that is gone."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from fedsilo.api.agent import Member, Proposal
from fedsilo.api.observed import condition, uid_of
from fedsilo.api.proposal import members_digest, proposal_digest
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.errors import Problem
from fedsilo.hub.client import HubAgent
from fedsilo.hub.failures import Unreachable
from fedsilo.hub.poller import token_digest
from fedsilo.silo.decision import read_decision
from fedsilo.silo.offer import read_offer
from fedsilo_operator.cluster.interface import CallRefused, ClusterUnavailable
from fedsilo_operator.objects import CLAIM, EVENT, JOB, SECRET, SILO_AGENT, SILO_KIND, Ref
from tests.unit.operator.connector.bench import HUB_ID, TOKEN, Institution, virtually
from tests.unit.operator.silo.harness import AGENT_REF, NAME, SILO_REF, agent

OTHER_KEY = "ed25519:" + "C" * 43 + "="
UNREACHABLE_ERROR = Unreachable(
    "hub.example:443: no connection (timed out); let the firewall permit TCP to it"
)


@virtually
async def test_the_key_is_made_here_and_its_fingerprint_shown_until_it_is_accepted(here: Institution) -> None:
    here.install()
    here.start()
    await here.wait_until(lambda: here.hub_condition() == ("False", "EnrolmentPending"))
    assert here.hub.registered is not None
    key = here.hub.registered[0]
    assert key.to_text() == here.silo()["status"]["publicKey"]
    assert key.fingerprint in (condition(here.silo(), "HubReached") or {})["message"]
    here.accept()
    await here.wait_until(lambda: here.hub_condition() == ("True", "HubReached"))
    assert here.hub.requests.count("enrol") == 1
    offer = here.silo()["status"]["offer"]
    await here.wait_until(lambda: here.hub.offer == offer)
    read_offer(here.hub.offer, str(SILO_REF), key.to_text())
    assert {"publicKey", "offer", "conditions"} <= here.silo()["status"].keys()
    assert {found["type"] for found in here.silo()["status"]["conditions"]} == {
        "Ready",
        "HubReached",
        "Valid",
    }


@virtually
async def test_a_job_of_the_hub_is_decided_here_and_the_decision_is_reported(here: Institution) -> None:
    await here.join()
    proposed = here.propose()
    await here.wait_until(lambda: here.reported_status().get("phase") == "Admitted")
    status = here.reported_status()
    assert here.agent()["spec"] == proposed.spec
    key = here.public_key()
    decision = read_decision(status["decision"], key)
    assert decision.decision == "Admitted"
    assert decision.proposal == proposal_digest(Proposal.model_validate(status["proposal"]))
    assert status.keys() <= {"phase", "message", "conditions", "proposal", "decision", "receipts"}

    here.propose(suspend=False)
    await here.wait_until(lambda: here.cluster.peek(JOB, Ref(SILO_REF.namespace, f"{NAME}-guard")))
    await here.wait_until(lambda: here.reported_status()["phase"] == "Starting")
    before = uid_of(here.agent())
    here.propose(suspend=True)
    await here.wait_until(lambda: here.agent()["spec"]["suspend"])
    assert uid_of(here.agent()) == before


@virtually
async def test_the_keys_of_all_silos_come_here_unchanged_and_are_decided_on(here: Institution) -> None:
    await here.join()
    members = [{"silo": str(SILO_REF), "publicKey": here.public_key()}] + [
        {"silo": f"silo-{name}/{name}", "publicKey": OTHER_KEY} for name in ("zoe", "amy")
    ]
    here.propose(members=members)
    await here.wait_until(lambda: here.reported_status().get("decision"))
    assert here.agent()["spec"]["trust"]["members"] == members
    told = members_digest(Member.model_validate(member) for member in members)
    assert here.reported_status()["proposal"]["members"] == told
    here.propose(suspend=False, members=members[::-1])
    await here.wait_until(lambda: not here.agent()["spec"].get("suspend"))
    assert here.agent()["spec"]["trust"]["members"] == members


@virtually
async def test_what_the_policy_refuses_is_refused_whatever_the_hub_wants(here: Institution) -> None:
    await here.join()
    here.install(methods=["scaffold"])
    here.propose(suspend=False)
    await here.wait_until(lambda: here.reported_status().get("phase") == "Refused")
    assert here.reported_status()["decision"]["decision"] == "Refused"
    assert not here.cluster.objects(JOB)


@virtually
async def test_an_agent_that_is_gone_at_the_hub_ends_and_its_volume_stays(here: Institution) -> None:
    await here.join()
    here.propose(suspend=False)
    await here.wait_until(lambda: here.cluster.objects(CLAIM))
    here.hub.remove(NAME)
    await here.wait_until(lambda: not here.is_there())
    assert here.cluster.objects(CLAIM)
    assert here.cluster.objects(SECRET)


@virtually
async def test_an_agent_that_was_made_again_at_the_hub_is_another_and_decided_anew(here: Institution) -> None:
    await here.join()
    here.propose()
    await here.wait_until(lambda: here.reported_status().get("decision"))
    first = uid_of(here.agent())
    here.propose("hub-2", taskKey=OTHER_KEY)
    await here.wait_until(lambda: here.is_there() and uid_of(here.agent()) != first)
    await here.wait_until(lambda: here.reported_status().get("decision"))
    assert here.reported_status()["proposal"]["taskKey"] == OTHER_KEY


@virtually
async def test_what_the_hub_changes_under_the_same_uid_has_no_effect(here: Institution) -> None:
    await here.join()
    here.propose()
    await here.wait_until(lambda: here.reported_status().get("decision"))
    before = here.agent()["spec"]
    here.propose(url="https://elsewhere.example")
    here.propose(suspend=False, url="https://elsewhere.example")
    await here.wait_until(lambda: not here.agent()["spec"].get("suspend"))
    assert here.agent()["spec"] == before | {"suspend": False}


@virtually
async def test_while_the_hub_is_gone_everything_here_goes_on_and_is_reported_afterwards(
    here: Institution,
) -> None:
    await here.join()
    here.propose(suspend=False)
    await here.wait_until(lambda: here.reported_status().get("phase") == "Starting")
    here.hub.away, since = UNREACHABLE_ERROR, here.now()
    here.hub.news()
    await here.wait_until(lambda: here.hub_condition() == ("False", "HubUnreachable"))
    found = condition(here.silo(), "HubReached") or {}
    assert "let the firewall permit" in found["message"]
    assert parse_timestamp(found["lastTransitionTime"]) - since < timedelta(minutes=2)

    here.cluster.remove(JOB, Ref(SILO_REF.namespace, f"{NAME}-guard"))
    await here.wait_until(lambda: here.cluster.peek(JOB, Ref(SILO_REF.namespace, f"{NAME}-guard")))
    here.install(methods=["scaffold"])
    await here.wait_until(lambda: here.agent()["status"]["phase"] == "Refused")
    writes, asked = len(here.cluster.writes), len(here.hub.requests)
    await asyncio.sleep(3600)
    assert here.cluster.writes[writes:] == [], "an hour without a hub costs no writes"
    said = condition(here.silo(), "HubReached") or {}
    assert said == {**found, "observedGeneration": 2}, "since when, and why, whatever else became of the Silo"
    assert len(here.hub.requests) - asked < 200
    assert here.reported_status()["phase"] == "Starting"
    here.hub.away = None
    await here.wait_until(lambda: here.reported_status()["phase"] == "Refused")
    await here.wait_until(lambda: here.hub_condition() == ("True", "HubReached"))


@virtually
async def test_a_connector_that_dies_at_any_moment_goes_on(here: Institution) -> None:
    here.install()
    for _ in range(20):
        here.start()
        await asyncio.sleep(0.05)
        await here.kill()
        if here.hub.registered is not None:
            here.accept()
    here.start()
    await here.wait_until(lambda: here.hub.registered)
    here.accept()
    await here.wait_until(lambda: here.hub_condition()[0] == "True")
    assert len(here.cluster.objects(SECRET)) == 1
    assert here.hub.registered is not None
    assert here.hub.registered[0].to_text() == here.public_key()
    here.propose()
    await here.wait_until(lambda: here.reported_status().get("decision"))
    here.hub.away = UNREACHABLE_ERROR
    await here.kill()
    here.start(token=None)
    before = uid_of(here.agent())
    await here.wait_until(lambda: here.hub_condition()[1] == "HubUnreachable")
    assert uid_of(here.agent()) == before, "as long as the hub says nothing, what is here stays"


@virtually
async def test_what_the_hub_has_said_before_is_not_followed_after_a_restart(here: Institution) -> None:
    await here.join()
    proposed = here.propose()
    await here.wait_until(here.is_there)
    old = here.hub.version
    here.hub.remove(NAME)
    await here.wait_until(lambda: not here.is_there())
    assert here.silo()["status"]["followed"] == {
        "hub": HUB_ID,
        "version": here.hub.version,
        "tokenDigest": token_digest(TOKEN),
    }
    await here.kill()
    here.hub.agents[NAME], here.hub.version = proposed, old
    here.start()
    await here.wait_until(lambda: here.hub_condition() == ("False", "HubRefused"))
    await asyncio.sleep(600)
    assert not here.is_there()


@virtually
async def test_who_makes_it_enrol_again_with_the_same_token_brings_nothing_back(here: Institution) -> None:
    """Whoever ends TLS between can say that the key is unknown; the token was used all the same."""
    await here.join()
    proposed = here.propose()
    await here.wait_until(here.is_there)
    old = here.hub.version
    here.hub.remove(NAME)
    await here.wait_until(lambda: not here.is_there())
    newest = here.silo()["status"]["followed"]["version"]
    await here.kill()
    here.hub.agents[NAME], here.hub.version, here.hub.registered = proposed, old - 3, None
    here.start()
    await here.wait_until(lambda: here.hub.requests.count("enrol") == 2)
    here.accept()
    await here.wait_until(lambda: here.hub_condition() == ("False", "HubRefused"))
    await asyncio.sleep(600)
    assert not here.is_there()
    assert here.silo()["status"]["followed"]["version"] == newest


@virtually
async def test_an_agent_that_cannot_be_made_is_reported_and_holds_up_no_other(here: Institution) -> None:
    await here.join()
    key = here.public_key()
    here.cluster.refuses = lambda obj: (
        CallRefused("exceeded quota")
        if obj["kind"] == "SiloAgent" and obj["metadata"]["name"] == AGENT_REF.name
        else None
    )
    spec = agent(publicKey=key)["spec"]
    other = {**spec, "job": {**spec["job"], "uid": "0b1c2d3e-0000-4000-8000-000000000002"}}
    here.hub.put(HubAgent("a-wrong-name", "hub-2", other))
    here.propose()
    await here.wait_until(
        lambda: here.reported_status().get("message", "").startswith("ApiRefused: the institution's")
    )
    assert here.reported_status()["phase"] == "Pending"
    wrong = here.hub.statuses["a-wrong-name"]["message"]
    assert wrong.startswith("Its name is a-wrong-name, and digits-north-")
    asked = here.hub.requests.count("report")
    await asyncio.sleep(600)
    assert here.hub.requests.count("report") == asked, "what stays as it is is not reported again"
    here.cluster.refuses = lambda _: None
    await here.wait_until(lambda: here.reported_status().get("decision"))


@virtually
async def test_an_agent_that_people_have_made_here_is_left_alone(here: Institution) -> None:
    await here.join()
    own = agent(publicKey=here.public_key())
    metadata = {name: own["metadata"][name] for name in ("name", "namespace", "labels")}
    here.cluster.put({**own, "metadata": metadata}, "kubectl")
    before = uid_of(here.agent())
    here.propose()
    await here.wait_until(
        lambda: here.reported_status().get("conditions", [{}])[0].get("reason") == "NameTaken"
    )
    here.hub.remove(NAME)
    await asyncio.sleep(120)
    assert uid_of(here.agent()) == before


@virtually
async def test_an_api_server_that_is_away_for_a_while_costs_only_time(here: Institution) -> None:
    await here.join()
    here.cluster.faults = lambda verb, kind: (
        ClusterUnavailable("no connection") if verb == "apply" and kind in (SILO_AGENT, SILO_KIND) else None
    )
    here.propose()
    await asyncio.sleep(120)
    assert not here.is_there()
    here.cluster.faults = lambda _verb, _kind: None
    await here.wait_until(lambda: here.reported_status().get("decision"))


@virtually
async def test_a_silo_with_another_key_asks_with_that(here: Institution) -> None:
    """The Silo was deleted and installed again, and its Secret as well."""
    await here.join()
    here.cluster.remove(SILO_KIND, SILO_REF)
    here.cluster.remove(SECRET, Ref(SILO_REF.namespace, "fedsilo-signing-key"))
    await asyncio.sleep(1)
    here.install()
    await here.wait_until(lambda: here.hub_condition()[0] == "False")
    assert here.registered_key() not in (None, here.public_key())
    assert here.hub_condition()[1] == "InvitationRefused"
    here.hub.registered = None
    await here.wait_until(lambda: here.registered_key() == here.public_key())


@virtually
async def test_it_is_told_by_an_event_when_it_stands_otherwise_with_the_hub(here: Institution) -> None:
    here.install()
    here.start()
    await here.wait_until(lambda: here.hub_condition()[1] == "EnrolmentPending")
    here.accept()
    await here.wait_until(lambda: here.hub_condition()[0] == "True")
    here.hub.away = Problem("unreachable", "the API server does not answer")
    here.hub.news()
    await here.wait_until(lambda: here.hub_condition()[1] == "HubUnreachable")
    reasons = [event["reason"] for event in here.cluster.objects(EVENT)]
    assert sorted(reason for reason in reasons if reason.startswith(("Hub", "Enrolment"))) == [
        "EnrolmentPending",
        "HubReached",
        "HubUnreachable",
    ]


@virtually
async def test_an_institution_leaves_when_one_of_its_people_says_so_and_may_come_back(
    here: Institution,
) -> None:
    await here.join()
    here.propose(suspend=False)
    await here.wait_until(lambda: here.cluster.objects(CLAIM))
    here.hub.away = UNREACHABLE_ERROR
    here.leave()
    await here.wait_until(lambda: here.hub_condition()[1] == "HubUnreachable")
    await asyncio.sleep(300)
    assert here.is_there(), "as long as the hub does not know, the silo has not left"
    here.hub.away = None
    await here.wait_until(lambda: here.hub.left)
    await here.wait_until(lambda: not here.is_there())
    assert here.hub_condition() == ("False", "Left")
    assert here.cluster.objects(CLAIM)
    assert here.cluster.objects(SECRET)
    await here.kill()
    asked = here.hub.requests.count("agents")
    here.start()
    await asyncio.sleep(600)
    assert here.hub_condition() == ("False", "Left")
    assert here.hub.requests.count("agents") == asked
    assert not here.is_there()

    await here.kill()
    here.leave(False)
    here.hub.token = "the next token"
    here.start("the next token")
    await here.wait_until(lambda: not here.hub.left)
    await here.wait_until(lambda: here.hub_condition()[0] == "True")
