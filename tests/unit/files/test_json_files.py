"""A JSON file that is not as it was written is an error that names it, the place and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsilo.errors import FileDamaged
from fedsilo.files.json_files import read_json, read_with_digest, write_json, write_with_digest


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "is empty"),
        (b"\0" * 20, "line 1, column 1 is not JSON"),
        (b'{"task": "r00001', "line 1, column 10 is not JSON"),
        (b'{"task":\n 1} {', "line 2, column 5 is not JSON"),
        (b'{"task": "\xff"}', "byte 10 is not UTF-8"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"9" * 5_000, "a number that is too long"),
    ],
    ids=["empty", "zeroed", "torn", "followed", "flipped", "nested", "long"],
)
def test_a_damaged_file_is_an_error_with_its_name_the_place_and_a_remedy(
    tmp_path: Path, content: bytes, place: str
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(FileDamaged, match=re.escape(f"{path}: ") + f".*{place}.*; remove it$") as caught:
        read_json(path, "remove it")
    assert (caught.value.exit_code, caught.value.reason) == (6, "FileDamaged")


def test_a_changed_bit_or_a_missing_end_does_not_pass_the_digest(tmp_path: Path) -> None:
    path, document = tmp_path / "state.json", {"rounds": {2: "zwölf", 10: 0.1}, "none": float("nan")}
    assert read_with_digest(path) is None
    write_with_digest(path, document)
    found, whole = read_with_digest(path), path.read_bytes()
    assert found is not None
    assert found["rounds"] == {"2": "zwölf", "10": 0.1}
    assert found.keys() == document.keys()
    damaged = [whole[:length] for length in range(len(whole))]
    for bit in range(8 * len(whole)):
        damaged.append(bytes(byte ^ (1 << bit % 8 if i == bit // 8 else 0) for i, byte in enumerate(whole)))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(FileDamaged, match=re.escape(str(path))):
            read_with_digest(path)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_not_written(number: float, tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_json(path, {"accuracy": 0.5})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"accuracy": [number]})
    assert read_json(path) == {"accuracy": 0.5}
