"""Cases of bad manifests: passages of the good one, and what a person wrote there instead.

What is said about each stands in `bad.golden` under the same name. A new case is added to both.
"""

from __future__ import annotations

Edit = tuple[str, str]

REFS = """    refs:
      - {namespace: silo-west, name: west}
      - {namespace: silo-north, name: north}
      - {namespace: silo-south, name: south}
"""
LAST_REF = "{namespace: silo-south, name: south}\n"
JOB = "metadata: {name: digits, namespace: federation}"
DATA = "data: {dataset: digits, classes: 10, inputShape: [1, 8, 8], validationFraction: 0.1}"
NORTH = '    - {name: digits, loader: "sklearn:digits", config: {split: train}}\n'
WEST = '    - {name: digits, loader: "sklearn:digits"}\n'
TEST_SET = '    datasets:\n      - {name: digits-test, loader: "sklearn:digits", config: {split: test}}\n'
WEIGHTS = "aggregation: {weights: samples}"
PRIVACY = "privacy: {minSamplesPerClass: 5}"
NAMESPACE = "apiVersion: v1\nkind: Namespace"
PADDING = "config: {padding: 2}"
DIGEST = "a" * 64
LONG_NAME = "a-federation-of-very-many-hospitals-in-europe"

FIELDS: dict[str, Edit] = {
    "misspelt field": ("localEpochs: 2", "localEpoch: 2"),
    "unknown field far from any": ("batchSize: 32", "batchSize: 32\n    flux: {a: 1}"),
    "misspelt field in a list entry": ("name: digits-test, loader", "nmae: digits-test, loader"),
    "misspelt section": ("  participation:", "  participations:"),
    "misspelt metadata": (JOB, "metadata: {name: digits, namespce: federation}"),
    "missing field": ("inputShape: [1, 8, 8], ", ""),
    "missing section": ("  model: {name: lenet, config: {padding: 2}}\n", ""),
    "string for a whole number": ("rounds: 10", 'rounds: "10"'),
    "fraction for a whole number": ("rounds: 10", "rounds: 10.5"),
    "truth value for a whole number": ("batchSize: 32", "batchSize: yes"),
    "string for a number": ("learningRate: 0.05", "learningRate: fast"),
    "infinite number": ("learningRate: 0.05", "learningRate: .inf"),
    "no number in a configuration": ("config: {padding: 2}", "config: {padding: [1, .nan]}"),
    "string for a truth value": ("suspend: false", 'suspend: "false"'),
    "number for a string": ("{name: lenet,", "{name: 7,"),
    "null for a string": ("{name: lenet,", "{name: null,"),
    "list for a mapping": ("aggregation: {weights: samples}", "aggregation: [samples]"),
    "string for a mapping": ("method: {name: fedavg, config: {}}", "method: fedavg"),
    "null for a mapping": (DATA, "data:"),
    "mapping for a list": ("inputShape: [1, 8, 8]", "inputShape: {channels: 1}"),
    "number for a configuration": ("config: {padding: 2}", "config: 2"),
    "negative rounds": ("rounds: 10", "rounds: -3"),
    "too many rounds": ("rounds: 10", "rounds: 10001"),
    "one class": ("classes: 10", "classes: 1"),
    "too many classes": ("classes: 10", "classes: 100001"),
    "string for classes": ("classes: 10", 'classes: "10"'),
    "name of one class": ("classes: 10", "classes: [cat]"),
    "class twice": ("classes: 10", "classes: [cat, dog, cat]"),
    "class that is no string": ("classes: 10", "classes: [yes, dog]"),
    "class without a name": ("classes: 10", 'classes: ["", dog]'),
    "class of two lines": ("classes: 10", 'classes: ["cat\\ndog", dog]'),
    "class in decomposed Unicode": ("classes: 10", 'classes: ["caf\\u0065\\u0301", dog]'),
    "unknown rule for other names": ("classes: 10", "classes: 10, onSchemaMismatch: ignore"),
    "alias of nothing": (NORTH, NORTH.replace("}}", "}, classAliases: {plane: ''}}")),
    "time without an offset": ("maxBytesPerRound: 64Mi", "notAfter: 2026-07-01T00:00:00"),
    "day that does not exist": ("maxBytesPerRound: 64Mi", 'notBefore: "2026-02-31T00:00:00Z"'),
    "day without a time": ("maxBytesPerRound: 64Mi", "notBefore: 2026-07-01"),
    "dates in the wrong order": (
        "maxBytesPerRound: 64Mi",
        'notBefore: "2026-07-01T00:00:00+02:00", notAfter: "2026-06-30T22:00:00Z"',
    ),
    "no bytes in all that are an amount": ("maxBytesPerRound: 64Mi", "maxBytesPerJob: plenty"),
    "no round answered": ("maxBytesPerRound: 64Mi", "maxAnsweredRounds: 0"),
    "no other silos": ("maxBytesPerRound: 64Mi", "minSilos: 0"),
    "no learning rate": ("learningRate: 0.05", "learningRate: 0"),
    "steps and passes": ("localEpochs: 2", "localEpochs: 2\n    localSteps: 50"),
    "warm-up without end": ("gradientClip: null", "gradientClip: null\n    warmupRounds: 11"),
    "nothing left to train on": ("validationFraction: 0.1", "validationFraction: 1.0"),
    "fraction above one": ("fraction: 1.0", "fraction: 1.5"),
    "empty shape": ("inputShape: [1, 8, 8]", "inputShape: []"),
    "shape with a batch": ("inputShape: [1, 8, 8]", "inputShape: [32, 1, 8, 8, 8]"),
    "augmentation of what is no image": (
        f"{DATA}\n  training:\n",
        f"{DATA.replace('1, 8, 8', '64')}\n  training:\n    augmentation: {{flip: true}}\n",
    ),
    "crop that leaves nothing": ("gradientClip: null", "gradientClip: null\n    augmentation: {crop: 8}"),
    "misspelt border": (
        "gradientClip: null",
        "gradientClip: null\n    augmentation: {crop: 4, border: mirror}",
    ),
    "zero in a shape": ("inputShape: [1, 8, 8]", "inputShape: [1, 0, 8]"),
    "unknown choice": ("schedule: constant", "schedule: cosin"),
    "unknown optimiser": ("name: sgd", "name: adagrad"),
    "unknown partition": ("scheme: dirichlet", "scheme: dirichlett"),
    "part that there is not": ("index: 1", "index: 3"),
    "unknown payload kind": ("[model]", "[model, gradients]"),
    "words for a duration": ("1h30m", "ten minutes"),
    "duration of nothing": ("1h30m", "0s"),
    "number for a duration": ("1h30m", "600"),
    "clock time for a duration": ("1h30m", "10:00"),
    "unknown unit": ("size: 10Gi", "size: 10 GB"),
    "misspelt limits": ("limits: {nvidia", "limit: {nvidia"),
    "device without a limit": ("limits: {nvidia", "requests: {nvidia"),
    "half a device": ("nvidia.com/gpu: 1", 'nvidia.com/gpu: "0.5"'),
    "two amounts of devices": (
        "limits: {nvidia.com/gpu: 1}",
        "requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}",
    ),
    "request above the limit": (
        "limits: {nvidia.com/gpu: 1}",
        "requests: {memory: 4096Mi}, limits: {memory: 2Gi}",
    ),
    "device without a domain": ("nvidia.com/gpu: 1", "gpu: 1"),
    "half a byte of memory": ("nvidia.com/gpu: 1", "memory: 500m"),
    "storage of nothing": ("size: 10Gi", "size: 0Gi"),
    "half a byte of storage": ("size: 10Gi", "size: 500m"),
    "name too long": (JOB, JOB.replace("digits", LONG_NAME)),
    "name with capitals": (JOB, JOB.replace("digits", "Digits")),
    "volume without a source": ("volume: {hostPath: /data}", "volume: {}"),
    "image by tag": ("[model],", "[model], trainerImages: ['registry.example/trainer:1'],"),
    "image without a registry": ("storage: {size: 10Gi}", "image: fedsilo-aggregator:1"),
    "label of the operator's own": (
        "storage: {size: 10Gi}",
        "podTemplate: {metadata: {labels: {fedsilo.io/job-uid: x}}}",
    ),
    "annotation that adds a network": (
        "storage: {size: 10Gi}",
        "podTemplate: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: lan}}}",
    ),
    "priority of the cluster's own parts": (
        "storage: {size: 10Gi}",
        "podTemplate: {priorityClassName: system-node-critical}",
    ),
    "affinity that compares with nothing": (
        "storage: {size: 10Gi}",
        "podTemplate: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "[{topologyKey: zone, labelSelector: {matchExpressions: [{key: app, operator: In}]}}]}}}",
    ),
    "address without TLS": ("storage: {size: 10Gi}", "url: http://aggregator.example"),
    "directory of a node in a job": (
        "config: {split: test}}\n",
        "config: {split: test}, volume: {hostPath: /etc}}\n",
    ),
    "two datasets of one name": (WEST, f"    - {{name: digits, loader: npz}}\n{WEST}"),
    "initial weights without a file": (PADDING, f"{PADDING}, initialWeights: {{sha256: {DIGEST}}}"),
    "initial weights of two files": (
        PADDING,
        f"{PADDING}, initialWeights: {{sha256: {DIGEST}, file: a.safetensors, run: runs/first}}",
    ),
    "initial weights without a digest": (PADDING, f"{PADDING}, initialWeights: {{run: runs/first}}"),
    "parameters without a pattern": (PADDING, f"{PADDING}, parameters: {{shared: []}}"),
    "pattern with a space": (PADDING, f"{PADDING}, parameters: {{frozen: ['encoder. *']}}"),
    "misspelt part of a model": (PADDING, f"{PADDING}, parameters: {{frosen: ['encoder.*']}}"),
    "rule without its field": (WEIGHTS, "aggregation: {rule: {name: krum}}"),
    "rule with the field of another": (WEIGHTS, "aggregation: {rule: {name: median, norm: 1.0}}"),
    "number of models that the rule does not choose": (
        WEIGHTS,
        "aggregation: {rule: {name: krum, byzantine: 1, selected: 2}}",
    ),
    "unknown rule": (WEIGHTS, "aggregation: {rule: {name: mediam}}"),
    "epsilon of zero": (PRIVACY, "privacy: {differentialPrivacy: {unit: example, epsilon: 0, delta: 0.001}}"),
    "negative epsilon": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: example, epsilon: -1, delta: 0.001}}",
    ),
    "delta of one": (PRIVACY, "privacy: {differentialPrivacy: {unit: example, epsilon: 1, delta: 1}}"),
    "no delta": (PRIVACY, "privacy: {differentialPrivacy: {unit: example, epsilon: 1}}"),
    "epsilon and noise": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: example, epsilon: 1, noiseMultiplier: 1, delta: 0.001}}",
    ),
    "less noise than a mechanism can have": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: example, noiseMultiplier: 9.0e-7, delta: 0.001}}",
    ),
    "more noise than a mechanism can have": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: example, noiseMultiplier: 1100000, delta: 0.001}}",
    ),
    "neither epsilon nor noise": (PRIVACY, "privacy: {differentialPrivacy: {unit: example, delta: 0.001}}"),
    "budget without a dataset": (
        "maxBytesPerRound: 64Mi",
        "privacyBudget: [{epsilon: 1.0, delta: 0.001}]",
    ),
    "budget of a dataset that there is not": (
        "maxBytesPerRound: 64Mi",
        "privacyBudget: [{dataset: scans, epsilon: 1.0, delta: 0.001}]",
    ),
    "budget of zero": (
        "maxBytesPerRound: 64Mi",
        "privacyBudget: [{dataset: digits, epsilon: 0, delta: 0.001}]",
    ),
    "budget of another unit": (
        "maxBytesPerRound: 64Mi",
        "privacyBudget: [{dataset: digits, unit: patient, epsilon: 1.0, delta: 0.001}]",
    ),
    "unit that nothing protects": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: patient, epsilon: 1, delta: 0.001}}",
    ),
    "silos whose change is not clipped": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: silo, epsilon: 1, delta: 0.001}}",
    ),
    "clipped gradients of a silo": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: silo, epsilon: 1, delta: 0.001, maxUpdateNorm: 1, maxGradNorm: 1}}",
    ),
    "clipped change of an example": (
        PRIVACY,
        "privacy: {differentialPrivacy: {unit: example, epsilon: 1, delta: 0.001, maxUpdateNorm: 1}}",
    ),
}
"""Faults within one document."""

FEDERATIONS: dict[str, Edit] = {
    "refs and selector": ("  silos:\n", "  silos:\n    selector: {matchLabels: {region: sea}}\n"),
    "neither refs nor selector": (REFS, "    refs: []\n"),
    "selector without labels": (REFS, "    selector: {matchLabels: {}}\n"),
    "selector that matches nothing": (REFS, "    selector: {matchLabels: {region: hill}}\n"),
    "selector of too few silos": (
        f"{REFS}  participation: {{fraction: 1.0, minSilos: 2,",
        "    selector: {matchLabels: {region: sea}}\n  participation: {fraction: 1.0, minSilos: 3,",
    ),
    "reference given twice": (LAST_REF, "{namespace: silo-west, name: west}\n"),
    "two references of one name": (LAST_REF, "{namespace: silo-south, name: west}\n"),
    "reference without a Silo": (LAST_REF, "{namespace: silo-east, name: east}\n"),
    "reference into another namespace": (LAST_REF, "{name: south}\n"),
    "two Silos of one name": ("{name: south, namespace: silo-south}", "{name: north, namespace: silo-south}"),
    "silo without the dataset": (NORTH, '    - {name: letters, loader: "sklearn:digits"}\n'),
    "misspelt test dataset": ("testDataset: digits-test", "testDataset: digits-tset"),
    "test dataset of nobody": (TEST_SET, ""),
    "misspelt public dataset": (WEIGHTS, "aggregation: {publicDataset: pictures}"),
    "test images as public ones": (WEIGHTS, "aggregation: {publicDataset: digits-test}"),
    "quorum above the silos": ("minSilos: 2", "minSilos: 5"),
    "quorum above the sample": ("fraction: 1.0, minSilos: 2", "fraction: 0.5, minSilos: 3"),
    "quorum of nobody": ("minSilos: 2", "minSilos: 0"),
    "unknown kind": ("kind: FederatedJob", "kind: FederatedJobs"),
    "missing kind": ("kind: FederatedJob\n", ""),
    "unknown version": ("v1alpha1\nkind: FederatedJob", "v1\nkind: FederatedJob"),
    "missing version": (NAMESPACE, "kind: Namespace"),
    "document of the operator": (NAMESPACE, "apiVersion: fedsilo.io/v1alpha1\nkind: SiloAgent"),
    "document that is a list": (f"{NAMESPACE}\nmetadata: {{name: federation}}", "[1, 2]"),
}
"""Faults that lie between documents."""

YAML: dict[str, Edit] = {
    "key given twice": ("rounds: 10", "rounds: 10\n    rounds: 20"),
    "key that is a number": ("config: {padding: 2}", "config: {2: padding}"),
    "key that is a list": ("config: {padding: 2}", "config: {[a]: padding}"),
    "unclosed brace": (JOB, JOB.removesuffix("}")),
    "tab": ("    batchSize: 32", "\tbatchSize: 32"),
    "binary value": ("config: {padding: 2}", "config: {padding: !!binary aGk=}"),
    "object of a language": ("config: {padding: 2}", "config: !!python/object/apply:os.getcwd []"),
    "whole number of nothing": ("config: {padding: 2}", "config: {padding: !!int ''}"),
    "number of nothing": ("config: {padding: 2}", "config: {padding: !!float ''}"),
    "word as a whole number": ("config: {padding: 2}", "config: {padding: !!int two}"),
    "word as a truth value": ("config: {padding: 2}", "config: {padding: !!bool many}"),
    "mapping as a string": ("config: {padding: 2}", "config: {padding: !!str {b: 1}}"),
    "list as a mapping": ("config: {padding: 2}", "config: !!map [padding]"),
    "string as a mapping": ("config: {padding: 2}", "config: !!map padding"),
    "hexadecimal without digits": ("config: {padding: 2}", "config: {padding: 0x_}"),
    "number of thousands of digits": ("config: {padding: 2}", f"config: {{padding: {'9' * 5000}}}"),
    "hexadecimal of thousands of digits": ("config: {padding: 2}", f"config: {{padding: 0x{'f' * 5000}}}"),
    "base 60 without end": ("config: {padding: 2}", f"config: {{padding: !!int 1{':1' * 5000}}}"),
    "half of a surrogate pair": ("config: {padding: 2}", r'config: {padding: "\ud83d"}'),
    "unknown alias": ("config: {padding: 2}", "config: *padding"),
    "alias that contains itself": ("config: {padding: 2}", "config: &config {padding: *config}"),
    "control character": ("{padding: 2}", "{padding: \x07}"),
}
"""Faults of the file itself."""

CASES = FIELDS | FEDERATIONS | YAML
