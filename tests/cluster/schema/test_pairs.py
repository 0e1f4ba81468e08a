"""The API server refuses features that do not go together in the words of validation, and takes those that do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest
import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl, KubectlError
from hack.combinations import FEATURES, Sections, are_one_field, merge_sections, refusals, sections_of
from hack.crd_pairs import Form, ruled_pairs
from tests.cluster.schema.federation import job, refusal_text

NULLS: Sections = {
    "aggregation": {"secure": None, "rule": None},
    "communication": {"upload": None},
    "data": {"preprocessing": None, "check": None},
    "evaluation": {"testDataset": None},
    "model": {"parameters": None},
    "privacy": {"differentialPrivacy": None},
    "training": {"trainer": None},
}
"""Every field that says with null that there is no feature."""


def document(name: str, sections: Mapping[str, Any]) -> Object:
    """A job of this specification."""
    return job(name) | {"spec": dict(sections)}


def name_of(forms: tuple[Form, Form]) -> str:
    return " and ".join(f"{form.feature.name} {form.value}".strip() for form in forms)


@pytest.mark.parametrize("forms", list(ruled_pairs()), ids=name_of)
def test_features_that_do_not_go_together(api: Kubectl, forms: tuple[Form, Form]) -> None:
    pair = [form.feature for form in forms]
    with pytest.raises(KubectlError) as failed:
        create_jobs(api, document("pair", sections_of(*pair)))
    (refused,) = {(path, f"{problem}; {remedy}") for path, _, problem, remedy in refusals(*pair)}
    assert refusal_text(failed) == ": Invalid value: ".join(refused)


def test_features_that_go_together(api: Kubectl) -> None:
    permitted = [
        sections_of(*pair)
        for pair in combinations(FEATURES, 2)
        if not are_one_field(*pair) and not refusals(*pair)
    ]
    jobs = [document(f"pair-{number}", sections) for number, sections in enumerate(permitted)]
    assert len(create_jobs(api, *jobs).splitlines()) == len(jobs) > 200


def test_null_is_no_feature(api: Kubectl) -> None:
    """Beside each feature that another could not be beside, where nulls of that one stand."""
    for feature in FEATURES:
        create_jobs(
            api,
            document("nulls", merge_sections(sections_of(feature), NULLS, feature.beside, feature.written)),
        )


def create_jobs(api: Kubectl, *jobs: Object) -> str:
    """What kubectl says of jobs that an API server would take."""
    text = yaml.safe_dump_all(jobs)
    return api.run("create", "--dry-run=server", "-o", "name", "-f", "-", stdin=text)
