"""The section `spec.communication` of a job: what a job without it is, and what is refused in it."""

from __future__ import annotations

import pytest

from fedsilo.api.communication import CommunicationSpec
from fedsilo.api.digest import frozen_spec
from fedsilo.validation import validate
from tests.federate import job_spec
from tests.unit.api.manifests import DIGITS


def lines(tmp_path_factory: pytest.TempPathFactory, communication: str) -> list[str]:
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    path.write_text(DIGITS.replace("  silos:\n", f"  communication: {communication}\n  silos:\n", 1))
    return [fault.line().partition("spec.communication.")[2] for fault in validate(path)]


def test_a_job_without_it_is_the_job_that_it_was() -> None:
    plain = job_spec("fedavg", 2)
    assert "communication" not in frozen_spec(plain)
    assert not plain.upload.is_lossy
    given = job_spec("fedavg", 2, communication={"upload": {"encoding": "int8"}})
    assert frozen_spec(given)["communication"] == {"upload": {"encoding": "int8"}}


@pytest.mark.parametrize(
    ("communication", "line"),
    [
        (
            "{upload: {encoding: int4}}",
            'upload.encoding: "int4": is not a known choice; use float32, bfloat16, float16, int8 or topk',
        ),
        (
            "{upload: {encoding: topk, fraction: 0}}",
            "upload.fraction: 0: is too small; use more than 0",
        ),
        ("{upload: {encoding: topk, fraction: 1.5}}", "upload.fraction: 1.5: is too large; use 1 or less"),
        (
            "{upload: {encoding: int8, fraction: 0.1}}",
            "upload.fraction: 0.1: belongs to encoding topk; remove it, or use topk",
        ),
        (
            "{upload: {encoding: int8, block: 100}}",
            "upload.block: 100: is not a power of two; use 256, which is usual",
        ),
        ("{upload: {encoding: int8, block: 8}}", "upload.block: 8: is too small; use 16 or more"),
        (
            "{upload: {encoding: int8, block: 8192}}",
            "upload.block: 8192: is too large; use 4096 or less",
        ),
        (
            "{upload: {encoding: bfloat16, block: 256}}",
            "upload.block: 256: belongs to encoding int8; remove it, or use int8",
        ),
        (
            "{download: {encoding: topk}}",
            'download.encoding: "topk": is not a known choice; use float32, bfloat16, float16 or int8',
        ),
        (
            "{download: {encoding: int8, block: 48}}",
            "download.block: 48: is not a power of two; use 256, which is usual",
        ),
        (
            "{upload: {compression: gzip}}",
            'upload.compression: "gzip": is not a known choice; use zstd',
        ),
        (
            "{upload: {compression: zstd, delta: true}}",
            "upload.delta: true: has no meaning with float32, which loses nothing; remove it, or choose another "
            "encoding",
        ),
        (
            "{upload: {errorFeedback: true}}",
            "upload.errorFeedback: true: has no meaning with float32, which loses nothing; remove it, or choose "
            "another encoding",
        ),
        (
            "{upload: {delta: true}}",
            "upload.delta: true: has no meaning with float32, which loses nothing; remove it, or choose another "
            "encoding",
        ),
        (
            "{upload: {encoding: topk, delta: false}}",
            "upload.delta: false: has topk leave out most of the model, and not of its change; remove it",
        ),
    ],
)
def test_nonsense_is_refused(tmp_path_factory: pytest.TempPathFactory, communication: str, line: str) -> None:
    assert lines(tmp_path_factory, communication) == [line]


def test_defaults_are_those_of_the_encoding() -> None:
    for encoding, lossy in (("float32", False), ("int8", True), ("topk", True)):
        upload = CommunicationSpec.model_validate({"upload": {"encoding": encoding}}).upload
        assert upload is not None
        assert (upload.sends_differences, upload.feeds_errors_back) == (lossy, lossy)


def test_compression_loses_nothing_and_is_of_any_encoding() -> None:
    for encoding in ("float32", "bfloat16", "float16", "int8"):
        given = {"encoding": encoding, "compression": "zstd"}
        both = CommunicationSpec.model_validate({"upload": given, "download": given})
        assert both.upload is not None and both.download is not None
        assert both.upload.is_encoded and both.download.is_encoded
        assert both.upload.is_lossy == both.download.is_lossy == (encoding != "float32")
    assert CommunicationSpec.model_validate({"upload": {"encoding": "topk", "compression": "zstd"}})
    assert not job_spec("fedavg", 2).upload.is_encoded
