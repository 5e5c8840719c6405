"""Content ids: what is hashed is the canonical JSON of what `content` tells of an operator."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import expressions, templates
from wellbound import WellBound, wellbound

from helix.canonical import canonical_text
from helix.expr import Literal
from helix.grammar.bind import bind
from helix.grammar.parse import parse
from helix.logical import Const, every_node
from helix.node import content, content_text, encode, part_text
from helix.types import JSON


@given(wellbound())
def test_the_hashed_text_is_the_canonical_json_of_the_content(subject: WellBound) -> None:
    modules = {path: parse(module, path) for path, module in subject.modules.items()}
    for node in every_node(bind(parse(subject.text), modules=modules).plan.sink):
        text = canonical_text([type(node).__name__, content(node)])
        assert content_text(node) == text
        assert node.id == hashlib.sha256(text.encode()).hexdigest()[:16]


@given(st.one_of(expressions(), templates()))
def test_the_text_of_a_part_is_its_canonical_json(part: object) -> None:
    assert part_text(part) == canonical_text(encode(part))
    assert part_text(part) == canonical_text(encode(part))  # from what is known of it by then


def test_equal_numbers_of_different_types_have_different_texts() -> None:
    texts = [part_text(Literal(value=value)) for value in (1, 1.0, True, "1", None)]
    assert len(set(texts)) == len(texts)


def test_a_text_without_a_utf8_form_has_no_id() -> None:
    with pytest.raises(UnicodeEncodeError):
        Const(type=JSON, json='"\ud800"')
