"""What the registries see, and that their faults and those of the file come together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedsilo.api.loading import ManifestFaults, load
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.validation import load_manifest, registry_faults, validate
from tests.federate import bound_method
from tests.unit.api.bad_manifests import LAST_REF, Edit
from tests.unit.api.manifests import GOOD_MANIFESTS, edited_manifest

JOB = "bad.yaml: document 5 (FederatedJob digits): "
UNKNOWN_METHOD: Edit = ("name: fedavg", "name: fedavgg")


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(*edits: Edit) -> list[str]:
    Path("bad.yaml").write_text(edited_manifest(*edits))
    with pytest.raises(ManifestFaults) as caught:
        load_manifest(Path("bad.yaml"))
    return str(caught.value).splitlines()


def test_good() -> None:
    federation = load_manifest(GOOD_MANIFESTS / "digits.yaml")
    assert registry_faults(federation) == validate(GOOD_MANIFESTS / "digits.yaml") == []
    assert federation == load(GOOD_MANIFESTS / "digits.yaml")


TRAINER = "trainer: python:hospital.training:train, trainerMetrics: "


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (
            "trainerMetrics: [dice]",
            'trainerMetrics: ["dice"]: has no meaning without trainer, whose metrics they are; name the function in '
            "trainer, or remove it",
        ),
        (
            TRAINER + "[dice, loss]",
            'trainerMetrics[1]: "loss": has a meaning of its own already; use another name; loss needs no declaration',
        ),
        (TRAINER + "[dice, f1, dice]", 'trainerMetrics[2]: "dice": is there twice; name each metric once'),
        (
            TRAINER + "[mean dice]",
            "trainerMetrics[0]: \"mean dice\": has not the right form; write letters, digits, '-', '_' and '.', with "
            "':' between parts",
        ),
    ],
)
def test_metrics_of_a_trainer_are_named_once_and_by_names_of_their_own(written: str, fault: str) -> None:
    edit = (
        "batchSize: 32",
        "batchSize: 32\n    " + written.replace(", trainerMetrics", "\n    trainerMetrics"),
    )
    assert lines(edit) == [f"{JOB}spec.training.{fault}"]


def test_unknown_method() -> None:
    problem = 'spec.method.name: "fedavgg": is not a known method; did you mean fedavg?'
    assert lines(UNKNOWN_METHOD) == [
        f"{JOB}{problem} `fedsilo methods` describes them; a package offers another in the group fedsilo.methods of "
        "its entry points"
    ]


def test_unknown_setting_of_a_method() -> None:
    (line,) = lines(("name: fedavg, config: {}", "name: fedavg, config: {mu: 1}"))
    assert line.startswith(f"{JOB}spec.method.config.mu: 1: is not a known field; ")


def test_what_the_method_itself_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = ("spec.training.rounds", 10, "is not what this method wants", "use 12")
    monkeypatch.setattr(registry.get("fedavg"), "check", lambda _self: [fault])
    assert lines() == [f"{JOB}spec.training.rounds: 10: is not what this method wants; use 12"]


def test_parts_of_a_model_that_the_method_needs_whole() -> None:
    parts = ("config: {padding: 2}", "config: {padding: 2}, parameters: {frozen: ['encoder.*']}")
    able = [name for name in registry.names() if bound_method(name).models.shared.whole is None]
    assert lines(("name: fedavg", "name: scaffold"), parts) == [
        f'{JOB}spec.model.parameters: {{"frozen": ["encoder.*"]}}: is not possible with method scaffold: a control '
        f"variate belongs to every learned tensor; remove it, or use {', '.join(able)}"
    ]


def test_a_test_set_at_the_aggregator_cannot_score_what_has_local_tensors() -> None:
    parts = ("config: {padding: 2}", "config: {padding: 2}, parameters: {local: ['classifier.*']}")
    assert lines(parts) == [
        f'{JOB}spec.evaluation.testDataset: "digits-test": scores a model without the silos\' local tensors, which the '
        "aggregator does not have; remove it: silos then score the model with their own, on their validation examples"
    ]


WEIGHTS, HELD_CONFIG = "{weights: samples}", "config: {split: test}}\n"
PUBLIC_DATASETS = HELD_CONFIG + '      - {name: crowd, loader: "sklearn:digits", config: {split: train}}\n'
NEEDS = ("name: fedavg", "name: feddf")


LISTED_CONFIG = "config: {path: a.csv, target: y, columns: [age, rating], categories: {rating: [A, B]}}"


def test_columns_that_a_silo_lists_are_the_features_of_the_job() -> None:
    table = ('"sklearn:digits", config: {split: train}}', f"csv, {LISTED_CONFIG}}}")
    network, network_shape = ("lenet, config: {padding: 2}", "mlp"), "inputShape: [1, 8, 8]"
    assert lines(table, network, (network_shape, "inputShape: [4]")) == [
        f"{JOB}spec.data.inputShape: [4]: is not the 3 features that columns and categories list in dataset digits of "
        "silo north; write [3], or correct config.columns or config.categories there"
    ]
    Path("good.yaml").write_text(edited_manifest(table, network, (network_shape, "inputShape: [3]")))
    assert validate(Path("good.yaml")) == []


def test_a_method_that_learns_from_public_data_needs_some() -> None:
    assert lines(NEEDS) == [
        f"{JOB}spec.aggregation.publicDataset: is not set, and method feddf learns at the aggregator from public "
        "examples; name one of spec.aggregator.datasets that is not the test set"
    ]


def test_public_data_are_for_methods_that_learn_from_them() -> None:
    named = (WEIGHTS, "{publicDataset: crowd}")
    assert lines((HELD_CONFIG, PUBLIC_DATASETS), named) == [
        f'{JOB}spec.aggregation.publicDataset: "crowd": has no meaning for method fedavg, which reads no data at the '
        "aggregator; remove it, or use another method, such as feddf"
    ]
    Path("good.yaml").write_text(edited_manifest(NEEDS, (HELD_CONFIG, PUBLIC_DATASETS), named))
    assert validate(Path("good.yaml")) == []


def test_test_images_are_no_public_data_under_another_name() -> None:
    again = HELD_CONFIG + '      - {name: crowd, loader: "sklearn:digits", ' + HELD_CONFIG
    (line,) = lines(NEEDS, (HELD_CONFIG, again), (WEIGHTS, "{publicDataset: crowd}"))
    assert line.startswith(
        f'{JOB}spec.aggregation.publicDataset: "crowd": has the examples of spec.evaluation.testD'
    )


def test_nor_are_they_in_part_or_by_another_path() -> None:
    Path("tests").mkdir()
    config = "config: {path: %s}, partition: {scheme: iid, silos: 2, index: %d}}\n"
    test = '- {name: digits-test, loader: "npz", ' + config % ("tests/x.npz", 0)

    def public_manifest(path: str, index: int) -> str:
        return test + '      - {name: crowd, loader: "npz", ' + config % (path, index)

    written = '- {name: digits-test, loader: "sklearn:digits", ' + HELD_CONFIG
    named = (WEIGHTS, "{publicDataset: crowd}")
    for path in ("./tests/../tests/x.npz", Path("tests/x.npz").resolve()):
        (line,) = lines(NEEDS, (written, public_manifest(str(path), 0)), named)
        assert line == (
            f'{JOB}spec.aggregation.publicDataset: "crowd": has the examples of spec.evaluation.testDataset, on which '
            "nothing may be learned; name other examples; of one source, two parts of one iid partition have none in "
            "common"
        )
    Path("good.yaml").write_text(
        edited_manifest(NEEDS, (written, public_manifest("./tests/x.npz", 1)), named)
    )
    assert validate(Path("good.yaml")) == []


def test_calibration_after_a_method_needs_what_that_needs() -> None:
    (line,) = lines(("name: fedavg, config: {}", "name: ccvr, config: {after: {name: ratio-loss}}"))
    assert "method ratio-loss learns at the aggregator from public labelled examples; " in line


UNKNOWN_METHOD_REMEDY = (
    "is not a known method; did you mean fedavg? `fedsilo methods` describes them; a package offers another in the "
    "group fedsilo.methods of its entry points"
)


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (
            "{name: fedavgg}",
            f'name: "fedavgg": {UNKNOWN_METHOD_REMEDY}',
        ),
        (
            "{name: fedprox, config: {straggler: 1}}",
            "config.straggler: 1: is not a known field; did you mean stragglers?",
        ),
        ("{name: fedconcat}", 'name: "fedconcat": does not yield one model; use fedavg or a method like it'),
        (
            "{name: tau-norm, config: {after: {name: fedavgg}}}",
            f'config.after.name: "fedavgg": {UNKNOWN_METHOD_REMEDY}',
        ),
    ],
)
def test_a_method_before_that_cannot_be_there_is_one_fault_beside_all_others(after: str, fault: str) -> None:
    found = lines(
        ("name: fedavg, config: {}", f"name: ccvr, config: {{after: {after}}}"),
        ("name: lenet", "name: lenett"),
        ("testDataset: digits-test", "testDataset: digits-test, metrics: [recal]"),
        ("config: {beta: 0.5}", "config: {beta: -0.5}"),
    )
    assert found[0] == f"{JOB}spec.method.config.after.{fault}"
    assert [line.split(": ")[2] for line in found[1:]] == [
        "spec.model.name",
        "spec.evaluation.metrics[0]",
        "spec.datasets[0].partition.config.beta",
    ]


def test_an_unknown_task_is_one_fault() -> None:
    (line,) = lines(("  training:\n", "  task: {name: clasification}\n  training:\n"))
    assert line == (
        f'{JOB}spec.task.name: "clasification": is not a known learning task; did you mean classification?'
    )


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("acuracy", "did you mean accuracy? spec.evaluation.metrics adds others"),
        ("recall", "use one of accuracy, loss; spec.evaluation.metrics adds others"),
    ],
)
def test_a_metric_that_is_not_reported(metric: str, told: str) -> None:
    (line,) = lines(("testDataset: digits-test", f"testDataset: digits-test, best: {{metric: {metric}}}"))
    assert line.endswith(f"is no figure that this job's evaluations report; {told}")


def test_checkpoints_that_no_round_reaches() -> None:
    (line,) = lines(("testDataset: digits-test", "testDataset: digits-test, checkpoints: 500"))
    assert ": 500: is more than the " in line
    assert "so that no checkpoint would be kept; use " in line


def test_a_path_of_initial_weights_that_is_empty() -> None:
    digest = f"initialWeights: {{sha256: {'a' * 64}, file: ''}}"
    (line,) = lines(("config: {padding: 2}", f"config: {{padding: 2}}, {digest}"))
    assert line == f'{JOB}spec.model.initialWeights.file: "": is empty; give the path'


def test_method_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_load(_name: str) -> None:
        raise MethodError("entry point x:y does not load")

    monkeypatch.setattr(registry, "get", fail_to_load)
    problem = 'spec.method.name: "fedavg": cannot be used (entry point x:y does not load)'
    assert lines() == [f"{JOB}{problem}; reinstall or remove the package that offers it"]


def test_model_and_its_settings() -> None:
    (line,) = lines(("name: lenet", "name: lenett"))
    assert line.startswith(f'{JOB}spec.model.name: "lenett": ')
    (line,) = lines(("config: {padding: 2}", "config: {paddin: 2}"))
    assert line.startswith(f"{JOB}spec.model.config.paddin: 2: ")


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("[recal]", '[0]: "recal": is not a known metric; did you mean recall?'),
        ("[recall, f1, recall]", '[2]: "recall": is named twice; remove one'),
        (
            "[python:kappa]",
            '[0]: "python:kappa": does not name a Python factory; write python:package.module:factory',
        ),
        (
            "[python:own.metrics:f1]",
            '[0]: "python:own.metrics:f1": is reported by the name of a built-in metric; ',
        ),
    ],
)
def test_metrics(metrics: str, said: str) -> None:
    (line,) = lines(("testDataset: digits-test", f"testDataset: digits-test, metrics: {metrics}"))
    assert line.startswith(f"{JOB}spec.evaluation.metrics{said}")


def test_a_best_model_by_a_score_that_nobody_reports() -> None:
    (line,) = lines(("testDataset: digits-test", "testDataset: digits-test, best: {metric: recall}"))
    assert line.startswith(f'{JOB}spec.evaluation.best.metric: "recall": is no figure that this job')


def test_no_picture_of_a_confusion_matrix_that_nobody_can_look_at() -> None:
    (line,) = lines(
        ("testDataset: digits-test", "testDataset: digits-test, metrics: [confusion_matrix]"),
        ("classes: 10", "classes: 101"),
    )
    assert line.startswith(
        f'{JOB}spec.evaluation.metrics[0]: "confusion_matrix": would have 101 rows, more than the 100 that are kept; '
    )


def test_datasets_of_silos_and_aggregator() -> None:
    (line,) = lines(("config: {beta: 0.5}", "config: {beta: -0.5}"))
    assert line.startswith(
        "bad.yaml: document 3 (Silo south): spec.datasets[0].partition.config.beta: -0.5: "
    )
    test_set = 'digits-test, loader: "sklearn:digit'
    (line,) = lines((f'{test_set}s"', f'{test_set}"'))
    assert line.startswith(f'{JOB}spec.aggregator.datasets[0].loader: "sklearn:digit": ')


def test_faults_of_the_file_and_of_the_registries_together() -> None:
    found = lines(UNKNOWN_METHOD, ("minSilos: 2", "minSilos: 9"), (LAST_REF, "{name: east}\n"))
    assert [line.split(": ")[2] for line in found] == [
        "spec.silos.refs[2]",
        "spec.participation.minSilos",
        "spec.method.name",
    ]


def test_validation_needs_neither_torch_nor_kubernetes() -> None:
    code = (
        "import sys\n"
        "from fedsilo.cli.main import main\n"
        f"assert main(['validate', '-f', {str(GOOD_MANIFESTS / 'digits.yaml')!r}]) == 0\n"
        "heavy = {'torch', 'torchvision', 'sklearn', 'kubernetes', 'aiohttp'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_task_that_the_method_has_no_meaning_for(monkeypatch: pytest.MonkeyPatch) -> None:
    line, *_ = lines(
        ("name: fedavg, config: {}", "name: ccvr, config: {}"),
        ("  method:", "  task: {name: multilabel}\n  method:"),
    )
    assert line == (
        f'{JOB}spec.task.name: "multilabel": has no meaning for method ccvr, because it is made for examples of '
        "exactly one class each; use classification, or another method such as fedavg"
    )


def test_preprocessing_that_does_nothing_or_has_nothing_to_measure() -> None:
    shape = "inputShape: [1, 8, 8]"
    (line,) = lines((shape, f"{shape}, preprocessing: {{standardise: false}}"))
    assert line == (
        f"{JOB}spec.data.preprocessing.standardise: false: and impute together do nothing; set standardise: true or "
        "impute: mean"
    )
    found = lines(
        (shape, "inputShape: [64], preprocessing: {impute: mean}"),
        ("  method:", "  task: {name: language}\n  method:"),
    )
    assert (
        f'{JOB}spec.data.preprocessing: {{"standardise": false, "impute": "mean"}}: is of measured values, and the '
        "learning task reads tokens; remove it"
    ) in found
