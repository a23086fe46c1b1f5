"""The loader: units, bounds, unions, one-line errors, and the way back to plain data."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from soft_estimator.schema import (
    ConfigError,
    Section,
    UnitError,
    choice,
    describe,
    load,
    parse_quantity,
    parse_unit,
    quantity,
    read_yaml,
    section,
    sections,
    setting,
    to_plain,
    vector,
    words,
)
from soft_estimator.schema.section import LARGEST, SMALLEST, kinds_of


@dataclass(frozen=True, kw_only=True)
class Ball(Section):
    tag: ClassVar[str] = "ball"
    radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius")


@dataclass(frozen=True, kw_only=True)
class Pile(Section):
    tag: ClassVar[str] = "pile"
    of: tuple[Thing, ...] = sections(doc="things")


Thing = Ball | Pile


@dataclass(frozen=True, kw_only=True)
class Paint(Section):
    color: str = choice("red", options=("red", "green"), doc="color")
    glossy: bool = setting(False, doc="shine")
    coats: int = quantity(1, low=1, high=5, doc="layers")


@dataclass(frozen=True, kw_only=True)
class Toy(Section):
    name: str = setting(doc="name")
    stiffness_pa: float = quantity(unit="Pa", low=0, low_open=True, doc="stiffness")
    ratio: float = quantity(0.25, low=0, high=0.5, high_open=True, doc="ratio", advice="try 0.4")
    place_m: tuple[float, float, float] = vector((0.0, 0.0, 0.0), unit="m", doc="place")
    limit_s: float | None = quantity(None, unit="s", doc="limit")
    shape: Thing = section(doc="shape")
    paint: Paint = section(Paint, doc="paint")
    spots: tuple[Paint, ...] = sections(doc="spots")

    def check(self) -> None:
        if self.limit_s is not None and self.limit_s < self.ratio:
            raise ConfigError(f"= {self.limit_s} must exceed ratio", "limit_s")


def toy(**changes: Any) -> dict[str, Any]:
    return {"name": "bear", "stiffness_pa": 10, "shape": {"ball": {"radius_m": 1}}, **changes}


def message(data: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Toy, data, name="toy")
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_and_types() -> None:
    made = load(Toy, toy())
    assert made.stiffness_pa == 10.0 and type(made.stiffness_pa) is float
    assert made.paint == Paint() and made.spots == () and made.limit_s is None
    assert made.place_m == (0.0, 0.0, 0.0)
    with pytest.raises(FrozenInstanceError):
        made.name = "other"  # type: ignore[misc]


# Each factor is exact in SI by definition of the prefixes, so only rounding of one product may remain.
@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("50 kPa", "Pa", 5e4),
        ("1.5MPa", "Pa", 1.5e6),
        ("2 mm", "m", 2e-3),
        ("-3 cm", "m", -0.03),
        ("4 ms", "s", 4e-3),
        ("1.2 g/cm^3", "kg/m^3", 1200.0),
        ("1.2 g/cm³", "kg/m^3", 1200.0),
        ("250 g", "kg", 0.25),
        ("5 mm/s", "m/s", 5e-3),
        ("9810 mm/s^2", "m/s^2", 9.81),
        ("180 deg", "rad", math.pi),
        ("90 deg/s", "rad/s", math.pi / 2),
        ("3 1/s", "1/s", 3.0),
        ("3 Hz", "1/s", 3.0),
        ("7 mN", "N", 7e-3),
        ("2 kPa/mm", "Pa/m", 2e6),
        ("2 N/m^3", "Pa/m", 2.0),
        ("2 1/mm", "1/m", 2000.0),
        ("1e3", "Pa", 1000.0),
        ("1e-3 m", "m", 1e-3),
        ("1e3", "", 1000.0),
    ],
)
def test_units(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=4e-16)


@pytest.mark.parametrize(
    ("text", "unit", "part"),
    [
        ("2 mm", "Pa", "does not measure Pa; write it in Pa, kPa, MPa, GPa"),
        ("2 1/s", "rad/s", "does not measure rad/s"),
        ("2 kpa", "Pa", "did you mean 'kPa'?"),
        ("2 furlong", "m", "unknown unit 'furlong'"),
        ("2 m/", "m", "unknown unit"),
        ("soft", "Pa", "is not a number; write one in Pa"),
        ("nan", "Pa", "is not a number"),
        ("", "Pa", "is not a number"),
        ("1 2 m", "m", "unknown unit"),
        ("3 %", "", "carries the unit '%'"),
    ],
)
def test_wrong_units_are_refused(text: str, unit: str, part: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, unit)
    assert part in str(caught.value)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["Pa", "m/s^2", "rad", "1/m", "kg/m^3"]))
def test_si_text_is_the_number_itself(value: float, unit: str) -> None:
    assert parse_unit(unit)[0] == 1.0
    assert parse_quantity(f"{value!r} {unit}", unit) == value
    assert parse_quantity(repr(value), unit) == value


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stifness_pa": 3}, "unknown key 'stifness_pa' in toy; did you mean 'stiffness_pa'?"),
        ({"zzz": 3}, "unknown key 'zzz' in toy; the keys are name, stiffness_pa"),
        ({"paint": {"colour": "red"}}, "unknown key 'colour' in paint; did you mean 'color'?"),
        ({"spots": [{}, {"coat": 2}]}, "unknown key 'coat' in spots[1]; did you mean 'coats'?"),
        ({True: 3}, "unknown key True in toy"),
        ({"stiffness_pa": -1}, "stiffness_pa = -1 must be > 0 [Pa]"),
        ({"stiffness_pa": 0}, "stiffness_pa = 0 must be > 0 [Pa]"),
        ({"stiffness_pa": "-2 kPa"}, "stiffness_pa = '-2 kPa' must be > 0 [Pa]"),
        ({"stiffness_pa": "2 mm"}, "stiffness_pa = '2 mm' has a unit that does not measure Pa"),
        ({"stiffness_pa": True}, "stiffness_pa = True must be a number [Pa]"),
        ({"stiffness_pa": [1]}, "stiffness_pa = [1] must be a number [Pa]"),
        ({"stiffness_pa": None}, "stiffness_pa is empty; give it a value or remove the key"),
        ({"stiffness_pa": math.nan}, "stiffness_pa = nan must be finite"),
        ({"stiffness_pa": math.inf}, "stiffness_pa = inf must be finite"),
        ({"stiffness_pa": 10**400}, "must be finite"),
        ({"ratio": 0.5}, "ratio = 0.5 must be >= 0, < 0.5; try 0.4"),
        ({"ratio": "3 Pa"}, "ratio = '3 Pa' carries the unit 'Pa'"),
        ({"place_m": [1, 2]}, "place_m = [1, 2] has 2 entries; it needs 3"),
        ({"place_m": 3}, "place_m = 3 must be a list of 3 numbers [m]"),
        ({"place_m": "abc"}, "place_m = 'abc' must be a list of 3 numbers [m]"),
        ({"place_m": [1, "2 s", 3]}, "place_m[1] = '2 s' has a unit that does not measure m"),
        ({"name": 12}, "name = 12 must be text (put it in quotes)"),
        ({"paint": {"color": "rad"}}, "paint.color = 'rad' must be one of red, green; did you mean 'red'?"),
        ({"paint": {"color": True}}, "paint.color = True must be red or green"),
        ({"paint": {"glossy": "yes"}}, "paint.glossy = 'yes' must be true or false"),
        ({"paint": {"glossy": 1}}, "paint.glossy = 1 must be true or false"),
        ({"paint": {"coats": 1.5}}, "paint.coats = 1.5 must be a whole number"),
        ({"paint": {"coats": 9}}, "paint.coats = 9 must be >= 1, <= 5"),
        ({"paint": 3}, "paint = 3 must be a mapping"),
        ({"paint": None}, "paint is empty"),
        ({"spots": {"color": "red"}}, "spots = {'color': 'red'} must be a list of sections"),
        ({"spots": [3]}, "spots[0] = 3 must be a mapping"),
        ({"spots": None}, "spots is empty"),
        ({"shape": {"bal": {}}}, "unknown key 'bal' in shape; did you mean 'ball'?"),
        ({"shape": {}}, "shape has {}; it needs exactly one of ball, pile"),
        ({"shape": "ball"}, "shape has 'ball'; it needs exactly one of ball, pile"),
        ({"shape": {"ball": {}, "pile": {}}}, "shape has the keys 'ball', 'pile'; it needs exactly one of ball, pile"),
        ({"shape": {"ball": None}}, "missing key 'radius_m' in shape.ball; add it: radius [m]"),
        ({"shape": {"pile": {"of": [{"ball": {"radius_m": 0}}]}}}, "shape.pile.of[0].ball.radius_m = 0 must be > 0"),
        ({"limit_s": 0.1}, "limit_s = 0.1 must exceed ratio"),
    ],
)
def test_messages_name_key_value_and_remedy(changes: dict[Any, Any], expected: str) -> None:
    assert expected in message(toy() | changes)


def test_missing_key_and_wrong_root() -> None:
    assert message({"name": "bear"}) == "missing key 'stiffness_pa' in toy; add it: stiffness [Pa]"
    assert message([1]) == "toy = [1] must be a mapping of keys to values"
    assert message(None) == "toy = None must be a mapping of keys to values"


def test_a_long_value_does_not_flood_the_message() -> None:
    assert len(message(toy(stiffness_pa=[0] * 1000))) < 150


def test_sections_made_in_python_obey_the_same_rules() -> None:
    made = load(Toy, toy())
    assert replace(made, place_m=np.array([1, 2, 3])).place_m == (1.0, 2.0, 3.0)
    assert replace(made, stiffness_pa=np.float32(2)).stiffness_pa == 2.0
    with pytest.raises(ConfigError, match="must be > 0"):
        replace(made, stiffness_pa=-1.0)
    with pytest.raises(ConfigError, match="shape = 3 must be a Ball or Pile"):
        replace(made, shape=3)  # type: ignore[arg-type]


finite = st.floats(-1e12, 1e12)
things = st.recursive(
    st.builds(Ball, radius_m=st.floats(1e-9, 1e9)),
    lambda inner: st.builds(Pile, of=st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)
paints = st.builds(
    Paint, color=st.sampled_from(["red", "green"]), glossy=st.booleans(), coats=st.integers(min_value=1, max_value=5)
)
toys = st.builds(
    Toy,
    name=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))),
    stiffness_pa=st.floats(SMALLEST, LARGEST),
    ratio=st.floats(0, 0.499),
    place_m=st.tuples(finite, finite, finite),
    limit_s=st.none() | st.floats(0.5, 1e9),
    shape=things,
    paint=paints,
    spots=st.lists(paints, max_size=3).map(tuple),
)


@given(toys)
def test_plain_form_loads_again_to_an_equal_object(made: Toy) -> None:
    assert load(Toy, to_plain(made)) == made
    # Through YAML text as well: repr of a float is exact, so no tolerance is needed.
    assert load(Toy, yaml.safe_load(yaml.safe_dump(to_plain(made)))) == made


def test_describe_lists_every_key_once() -> None:
    rows = {row.key: row for row in describe(Toy)}
    assert len(rows) == len(describe(Toy))
    assert list(rows) == [
        *["name", "stiffness_pa", "ratio", "place_m", "limit_s", "shape", "shape.ball.radius_m", "shape.pile.of[]"],
        *["paint", "paint.color", "paint.glossy", "paint.coats"],
        *["spots[]", "spots[].color", "spots[].glossy", "spots[].coats"],
    ]
    assert rows["stiffness_pa"].required and rows["stiffness_pa"].unit == "Pa"
    ratio = rows["ratio"]
    assert (ratio.default, ratio.low, ratio.high, ratio.bounds) == (0.25, 0, 0.5, ">= 0, < 0.5")
    assert rows["paint.color"].choices == ("red", "green")
    assert rows["paint"].default == {"color": "red", "glossy": False, "coats": 1}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", "has the key 'a' twice, on lines 1 and 3; keep one"),
        ("a: {c: 1, c: 2}\n", "has the key 'c' twice"),
        ("a: [1, 2\nb: 3\n", "is not valid YAML on line 2"),
        ("a: !!python/object:os.system 1\n", "is not valid YAML on line 1"),
        ("? [1, 2]\n: 3\n", "has a key on line 1 that is not a single word"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert part in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(tmp_path / "binary.yaml")


@pytest.mark.parametrize(("value", "part"), [("1e300", "at most 1e+15 in size"), (-1e300, "at most 1e+15 in size"),
                                             ("1e-300", "at least 1e-15"), (10**400, "must be finite")])  # fmt: skip
def test_numbers_beyond_this_world_are_one_line(value: object, part: str) -> None:
    """Squares and cubes of what is allowed stay numbers: (1e15)³ = 1e45 in double, (1e15)² = 1e30 in single."""
    with pytest.raises(ConfigError, match=r"^stiffness_pa = ") as caught:
        load(Toy, {"name": "bear", "stiffness_pa": value, "shape": {"ball": {"radius_m": 1}}})
    assert part in str(caught.value)


def test_exponent_without_a_dot_is_a_number(tmp_path: Path) -> None:
    # YAML 1.1 reads 1e3 as text, so the loader has to.
    (tmp_path / "file.yaml").write_text("name: bear\nstiffness_pa: 1e3\nshape: {ball: {radius_m: 1}}\n")
    assert load(Toy, read_yaml(tmp_path / "file.yaml")).stiffness_pa == 1000.0


def test_a_list_of_words_is_kept_as_words() -> None:
    """Words go through unchanged and come back as a plain list; anything else is refused by its place."""

    @dataclass(frozen=True, kw_only=True)
    class Named(Section):
        names: tuple[str, ...] = words(("a",), doc="names", advice="a name")

    kind = kinds_of(Named)[0]
    assert (kind.form, kind.default) == ("words", ("a",))
    assert to_plain(Named(names=["x", "y[1]"])) == {"names": ["x", "y[1]"]}
    assert describe(Named)[0].type == "list of words"
    with pytest.raises(ConfigError, match=r"^names\[1\] = 3 must be a name$"):
        Named(names=["x", 3])
    with pytest.raises(ConfigError, match=r"^names = 'x' must be a list of words$"):
        Named(names="x")
