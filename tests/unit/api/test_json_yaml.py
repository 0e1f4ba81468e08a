"""YAML that is written is read as what it was: a text stays a text, whatever it looks like."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fedsilo.api.documents import documents_in
from fedsilo.api.json_yaml import JsonDumper

plain_characters = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(plain_characters),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(plain_characters), inner, max_size=3),
    max_leaves=6,
)


@given(text=st.from_regex(r"[-+]?[0-9a-f_.xobeE+-]{1,20}", fullmatch=True) | st.text(plain_characters))
@example("1234567e12345678")
@example("1e5")
@example("017")
@example("0o17")
@example("yes")
@example("~")
def test_a_text_stays_a_text(text: str) -> None:
    [document] = documents_in(yaml.dump({"text": text}, Dumper=JsonDumper), "file").documents
    assert document.content == {"text": text}


@given(value=values)
def test_what_json_has_comes_back(value: object) -> None:
    found = documents_in(yaml.dump({"value": value}, Dumper=JsonDumper), "file")
    assert found.faults == () and found.documents[0].content == {"value": value}


def test_directives_are_of_the_document_that_follows() -> None:
    found = documents_in(
        "%YAML 1.1\n---\na: 1\n...\n# b\n%YAML 1.1\n%TAG ! x:\n---\nb: 2\n---\nc: [\n", "file"
    )
    assert [document.content for document in found.documents] == [{"a": 1}, {"b": 2}]
    assert [(fault.document, fault.path) for fault in found.faults] == [("document 3", "line 12, column 1")]


@pytest.mark.parametrize("number", [1, 1.5, 1e-05, 1e300, -3])
def test_numbers_need_no_quotes(number: float) -> None:
    assert "'" not in yaml.dump({"number": number}, Dumper=JsonDumper)
