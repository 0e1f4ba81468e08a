"""Objects that an API server is asked to take, beside those that `fedsilo validate` is tried on.

What is said about each bad one stands in `schema.golden` under the same name.
"""

from __future__ import annotations

import yaml

from tests.pages import blocks
from tests.unit.api.bad_manifests import FEDERATIONS, FIELDS, JOB, NORTH, REFS, WEST
from tests.unit.api.manifests import DIGITS, edited_manifest

KEY = f"ed25519:{'A' * 43}="
DIGEST = "0123456789abcdef" * 4
POLICY = "policy: {payloadKinds: [model]"
RATE = "learningRate: 0.05"
WEIGHTS = "  aggregation: {weights: samples}"

REFUSED_BY_BOTH = {name: edited_manifest(edit) for name, edit in (FIELDS | FEDERATIONS).items()}

JOBS = {
    "decimal amount": edited_manifest(("size: 10Gi", "size: 0.5")),
    "negative amount": edited_manifest(("size: 10Gi", "size: -1")),
    "unknown weights": edited_manifest(("weights: samples", "weights: median")),
    "long label": edited_manifest((REFS, f"    selector: {{matchLabels: {{{'a' * 318}: b}}}}\n")),
    "long value of a label": edited_manifest((REFS, f"    selector: {{matchLabels: {{a: {'b' * 1025}}}}}\n")),
    "name with a dot": edited_manifest((JOB, JOB.replace("digits", "di.gits"))),
    "name that begins with a digit": edited_manifest((JOB, JOB.replace("digits", "1digits"))),
    "nothing to evaluate on": edited_manifest(
        (", validationFraction: 0.1", ", validationFraction: 0"),
        ("every: 1, testDataset: digits-test", "every: 1"),
    ),
    "quorum of a fraction that no binary number is": edited_manifest(
        ("fraction: 1.0, minSilos: 2", "fraction: 0.07, minSilos: 8"),
        (REFS, "    refs: [" + ", ".join(f"{{name: s{number}}}" for number in range(100)) + "]\n"),
    ),
    "long duration": edited_manifest(("1h30m", "1234567890123456789m")),
    "moments of an optimizer that has none": edited_manifest((RATE, f"{RATE}, betas: [0.9, 0.99]")),
    "momentum of an optimizer that has none": edited_manifest(
        (RATE, f"{RATE}, momentum: 0.5"), ("sgd", "adamw")
    ),
    "block of another encoding": edited_manifest(
        (WEIGHTS, f"  communication: {{upload: {{encoding: topk, block: 256}}}}\n{WEIGHTS}")
    ),
    "differences of what loses nothing": edited_manifest(
        (WEIGHTS, f"  communication: {{upload: {{errorFeedback: true}}}}\n{WEIGHTS}")
    ),
    "metrics of no trainer": edited_manifest((WEIGHTS, f"    trainerMetrics: [auc]\n{WEIGHTS}")),
}

SILOS = {
    "volume of two sources": edited_manifest(
        ("volume: {hostPath: /data}", "volume: {hostPath: /data, persistentVolumeClaim: scans}")
    ),
    "negative part": edited_manifest(("index: 1", "index: -1")),
    "unknown effect of a taint": edited_manifest(("operator: Exists", "operator: Exists, effect: Never")),
    "no datasets": edited_manifest((f"datasets:\n{NORTH}", "datasets: []\n")),
    "loader with a blank": edited_manifest((WEST, '    - {name: digits, loader: "sklearn digits"}\n')),
    "two decisions on one job": edited_manifest(
        (
            POLICY,
            f"{POLICY}, approvals: [{{job: a, specDigest: {DIGEST}, decision: Approved}}, "
            f"{{job: a, specDigest: {DIGEST}, decision: Refused}}]",
        )
    ),
    "decision on nothing": edited_manifest(
        (POLICY, f"{POLICY}, approvals: [{{job: a, specDigest: abc, decision: Approved}}]")
    ),
    "undecided": edited_manifest(
        (POLICY, f"{POLICY}, approvals: [{{job: a, specDigest: {DIGEST}, decision: Perhaps}}]")
    ),
    "no rounds permitted": edited_manifest((POLICY, f"{POLICY}, maxRounds: 0")),
}

AGENT = f"""\
apiVersion: fedsilo.io/v1alpha1
kind: SiloAgent
metadata: {{name: digits-north-0123abcd, namespace: silo-north}}
spec:
  job:
    namespace: federation
    name: digits
    uid: 6f1c
    specDigest: {DIGEST}
    spec: {yaml.safe_dump(list(yaml.safe_load_all(DIGITS))[-1]["spec"], default_flow_style=True, width=10**6).strip()}
  silo: {{namespace: silo-north, name: north}}
  trust:
    url: https://digits-aggregator.federation.svc:8443
    address: 10.96.0.7
    caCertificate: "-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n"
    taskKey: {KEY}
    publicKey: {KEY}
  suspend: true
"""


def agent(*replacements: tuple[str, str]) -> str:
    """The SiloAgent of the digits job with passages replaced; each must occur."""
    text = AGENT
    for old, new in replacements:
        if old not in text:
            raise AssertionError(f"{old!r} does not occur in the agent")
        text = text.replace(old, new)
    return text


AGENTS = {
    "agent with a long name": agent(("name: digits-north-0123abcd", f"name: {'a' * 41}")),
    "agent without a job": agent(("    uid: 6f1c\n", "")),
    "agent that trusts nobody": agent(("BEGIN CERTIFICATE", "BEGIN KEY")),
    "agent with half a key": agent((f"taskKey: {KEY}", "taskKey: ed25519:AAAA=")),
    "agent of no address": agent(("10.96.0.7", "aggregator")),
    "agent of an open address": agent(("https://", "http://")),
    "agent of a job that cannot be": agent(("minSilos: 2", "minSilos: 4")),
}

BAD_OBJECTS = REFUSED_BY_BOTH | JOBS | SILOS | AGENTS

GOOD_OBJECTS = {
    "digits": DIGITS,
    "pod templates": blocks("docs/pod-templates.md", "yaml")[0],
    "agent": AGENT,
    "agent of a job that says null": agent(("gradientClip: null", "gradientClip: null, decay: 0.5")),
    "longest name": edited_manifest((JOB, JOB.replace("digits", "a" * 40))),
    "suspended": edited_manifest(("suspend: false", "suspend: true")),
    "selector": edited_manifest((REFS, "    selector: {matchLabels: {region: sea}}\n")),
    "quorum of the sample": edited_manifest(("fraction: 1.0, minSilos: 2", "fraction: 0.5, minSilos: 2")),
    "quorum of a decimal fraction": edited_manifest(
        ("fraction: 1.0, minSilos: 2", "fraction: 0.07, minSilos: 7"),
        (REFS, "    refs: [" + ", ".join(f"{{name: s{number}}}" for number in range(100)) + "]\n"),
    ),
    "as many silos as there may be": edited_manifest(
        (REFS, "    refs: [" + ", ".join(f"{{name: {'s' * 35}-{number}}}" for number in range(1000)) + "]\n")
    ),
    "as many datasets as there may be": edited_manifest(
        (
            "      - {name: digits-test,",
            "".join(f"      - {{name: {'d' * 60}{number:02}, loader: npz}}\n" for number in range(99))
            + "      - {name: digits-test,",
        )
    ),
    "steps in place of passes": edited_manifest(("localEpochs: 2", "localSteps: 50")),
    "whole amount": edited_manifest(("size: 10Gi", "size: 1000")),
    "quoted decimal amount": edited_manifest(("size: 10Gi", 'size: "1.5Gi"')),
    "no evaluation but on the test set": edited_manifest(
        ("validationFraction: 0.1", "validationFraction: 0")
    ),
    "nulls": edited_manifest(
        ("aggregation: {weights: samples}", "aggregation: {weights: null}\n  agents: {image: null}"),
        (REFS, f"{REFS}    selector: null\n"),
    ),
    "approvals": edited_manifest(
        (
            POLICY,
            f"{POLICY}, manualApproval: true, approvals: ["
            + ", ".join(
                f"{{job: {number}-a, specDigest: {DIGEST}, decision: Approved, note: fine}}"
                for number in range(200)
            )
            + "]",
        )
    ),
}
