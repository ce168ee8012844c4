"""Records out of JSON: what was written comes back equal, and what is anything else is refused with its place."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.files import BLOCK_BYTES, check_name, from_plain, sampled_digest, to_plain
from saccade.types import InputError

numbers = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@dataclass(frozen=True)
class Inner:
    kind: Literal["one", "other"]
    share: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    on: bool
    pair: tuple[float, float]
    inner: tuple[Inner, ...] = ()
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)


inners = st.builds(Inner, st.sampled_from(["one", "other"]), st.none() | numbers)
outers = st.builds(
    Outer, st.text(), st.integers(), st.booleans(), st.tuples(numbers, numbers), st.lists(inners).map(tuple),
    st.dictionaries(st.text(), st.lists(numbers).map(tuple), max_size=3),
)  # fmt: skip


@given(outers)
def test_what_was_written_comes_back(record: Outer) -> None:
    text = json.dumps(to_plain(record), allow_nan=False)
    assert from_plain(Outer, json.loads(text), "record") == record


def test_nan_comes_back_as_one_object() -> None:
    """So that records that hold it can be equal."""
    plain = to_plain(Inner("one", math.nan))
    assert plain["share"] == "NaN"
    assert from_plain(Inner, plain, "record") == from_plain(Inner, plain, "record")


@given(st.sampled_from([Outer, Inner, float, tuple[int, int], Literal["one"], dict[str, int], bool]), json_values)
def test_anything_else_is_refused_with_its_place(kind: Any, value: Any) -> None:
    try:
        read = from_plain(kind, value, "file.json")
    except InputError as error:
        assert str(error).startswith("file.json")
    else:
        assert from_plain(kind, json.loads(json.dumps(to_plain(read))), "again") == read or read != read


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": True}, "record.count: True; expected int"),
        ({"on": 1}, "record.on: 1; expected bool"),
        ({"pair": [1]}, r"record.pair: \[1\]; expected tuple"),
        ({"pair": [1, 10**400]}, r"record.pair\[1\]: 10+; expected float"),
        ({"inner": [{"kind": "third"}]}, r"record.inner\[0\].kind: 'third'; expected one, other"),
        ({"colour": 1}, "colour unknown or missing"),
    ],
)
def test_the_place_is_named(change: dict, told: str) -> None:
    plain = to_plain(Outer("a", 1, True, (1.0, 2.0)))
    with pytest.raises(InputError, match=told):
        from_plain(Outer, plain | change, "record")


@pytest.mark.parametrize("size", [1, 1 << 24, (1 << 24) + 1, 100_000_003], ids=lambda size: f"{size:,}")
def test_a_digest_sees_the_ends_and_the_size_of_a_file_of_any_size(size: int, tmp_path: Path) -> None:
    """Up to 16 MB every byte, above that at least those of blocks all over the file; what is between them costs no time."""
    path = tmp_path / "file"

    def digest(changed: int | None = None, length: int = size) -> str:
        with path.open("wb") as file:
            file.truncate(length)  # takes no space
            if changed is not None:
                file.seek(changed)
                file.write(b"x")
        return sampled_digest(path)

    plain = digest()
    assert digest() == plain
    assert plain not in {digest(0), digest(size - 1), digest(length=size + 1), digest(length=size - 1)}
    assert size > 1 << 24 or digest(size // 2) != plain
    places = range(size // 8, size - size // 8, BLOCK_BYTES // 2) if size > 1 << 24 else ()
    assert not places or sum(digest(place) != plain for place in places[::100]) >= 1


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "..", ".", "", "a/", "a//b", "a\0b"])
def test_names_in_files_stay_in_their_folder(name: str) -> None:
    with pytest.raises(InputError, match=r"list\.json: names .* without \.\. and not absolute"):
        check_name(name, "list.json")
    assert check_name("a/b..c.h5", "list.json") == "a/b..c.h5"
