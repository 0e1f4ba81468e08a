"""Whose keys count in a job with secure aggregation: what silo controller and guard ask of a SiloAgent's list."""

from __future__ import annotations

from fedsilo.api.agent import SiloAgentSpec
from fedsilo.errors import PolicyRefused
from fedsilo.wire import VerifyKey, sharing

FIELD = "spec.trust.members"
REMEDY = "delete this SiloAgent, the operator makes the right one"


def member_keys(agent: SiloAgentSpec) -> dict[str, VerifyKey]:
    """Silo -> the key that signs for it, in the job's order; none in a job whose aggregator may see single updates.

    :raises PolicyRefused: they are not those of the job's silos, or not this one's own, or of two silos the same:
        whoever has the others' keys knows what this silo sends.
    """
    spec, listed = agent.job.spec, agent.trust.members or ()
    names = [member.silo for member in listed]
    expected = [str(ref) for ref in spec.silos.refs] if spec.aggregation.secure else []
    if names != expected:
        wrong = next((name for name in names if name not in expected), None)
        wrong = wrong or next((name for name in expected if name not in names), "another order")
        raise PolicyRefused(
            f"{FIELD}: {len(names)} silos, where the job has {len(expected)} that mask their updates under each "
            f"other's keys ({wrong}); {REMEDY}"
        )
    keys = {member.silo: member.public_key for member in listed}
    if shared := sharing(keys):
        raise PolicyRefused(f"{FIELD}: {shared[0]} and {shared[1]} have the same key; {REMEDY}")
    own = f"{agent.silo.namespace}/{agent.silo.name}"
    if listed and keys.get(own) != agent.trust.public_key:
        raise PolicyRefused(
            f"{FIELD}: the key of {own} is not that of spec.trust.publicKey, {agent.trust.public_key}; {REMEDY}"
        )
    return {member.silo: VerifyKey.from_text(member.public_key) for member in listed}
