"""What a recording shows of an object before anything is estimated: where it is, its rest shape, its drops."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from soft_estimator.geometry.extent import widest_m
from soft_estimator.measuring.alone import cut_to_shape, off_in_air_m, without_fingers
from soft_estimator.measuring.own_weight import as_it_flies, without_weight
from soft_estimator.measuring.phases import TOGETHER_S, Drop, Poke, find_drops, find_pokes, still_part, still_parts
from soft_estimator.measuring.sightings import Progress, Survey, look_through, spread
from soft_estimator.measuring.surroundings import Surroundings, standing_faces, surroundings_of
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.faces import Face, Faces
from soft_estimator.perception.objects import KnownThings
from soft_estimator.perception.placed_side import Placed
from soft_estimator.perception.primitives import PLAIN
from soft_estimator.perception.scan import ScannedBody, with_cells
from soft_estimator.perception.scan_choice import choose_body
from soft_estimator.perception.scan_frames import ScanData, gather
from soft_estimator.perception.scan_sides import place_sides
from soft_estimator.perception.sensor_noise import learn_noise
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, ScanSettings
from soft_estimator.recordings.adjusted import Choice
from soft_estimator.recordings.interface import Recording
from soft_estimator.recordings.opening import open_recording

NOISE_FRAMES, SCAN_FRAMES = 8, 8
# Grid cells of balls, boxes, rods and rings, and of all other bodies, which touch with smaller parts: of its true
# shape, a duck of 8 kPa comes back 25 % too soft with the former, and 15 % with the latter, before what is left of the
# grid's error is taken off.
CELLS, CELLS_OF_OTHERS = 400, 1000
_MOST_SIDES = 7  # beside the longest still part
_SAME_PLACE_M = 0.001  # an object whose middle moved by less was not turned
# Times that of the longest still part: a duck that trembles after a drop has 2.1, laid on six sides 0.8 to 1.2.
_UNREST = 1.6
_LAID_M = 0.02  # above where its lower edge was: it is held up, not laid on another side
_TURNED_S = 1.0  # after the hand has gone, the object lies still
_FUSION_CELLS = 3000  # what was seen is fused as finely as a grid of so many cells would need

_LEAST_RATE_HZ = 18.0
_log = logging.getLogger(__name__)


class NotMeasured(ValueError):
    """The recording does not tell: why, and what to do about it."""


class NoDrop(NotMeasured):
    """The object was seen at rest and its shape found, but it does not fall."""


@dataclass(frozen=True)
class MeasureOptions:
    """How to measure.

    Attributes:
        cells: grid cells of the body; as many as its shape needs if left out.
        finder: how the object is found; its noise is learnt. choice: of the recording.
        topic, fixed_frame: of a bag. up: direction against gravity in the recording's frame; the table's normal by
            default. name: of the scene that is written.
        friction: first guess of the table's coefficient of friction, which is estimated then; None: a smooth table.
    """

    cells: int | None = None
    finder: FinderSettings = field(default_factory=FinderSettings)
    choice: Choice = field(default_factory=Choice)
    topic: str | None = None
    fixed_frame: str | None = None
    up: tuple[float, float, float] | None = None
    name: str = "my_object"
    friction: float | None = None


@dataclass(frozen=True, eq=False)
class Seen:
    """What a recording shows before anything is estimated: where the object is in every frame, its rest shape, its
    drops and pokes, a cloud with it at rest, the camera's noise, what a reader should know, and what stands beside
    it."""

    survey: Survey
    body: ScannedBody
    drops: list[Drop]
    pokes: list[Poke]
    cloud: Cloud
    noise: NoiseSettings
    notes: list[str]
    around: Surroundings = field(default_factory=Surroundings)


def look_at(path: Path | str, options: MeasureOptions, progress: Progress | None = None) -> Seen:
    """Find the object, its rest shape and its drops in a recording."""
    with open_recording(path, options.topic, options.fixed_frame, options.choice) as recording:
        finder, said = _with_noise(recording, options.finder)
        _log.info("%s", said)
        faces = standing_faces(recording, finder, progress)
        try:
            return _look_at(recording, finder, faces, options, said, progress)
        except ValueError as error:  # what hardly moves may have been taken for what stands there
            first = error
            if not faces:
                raise _told(first) from error
            _log.info("with what stands about left out: %s", first)
        try:
            return _look_at(recording, finder, [], options, said, progress)
        except ValueError as error:
            if str(error) == str(first) or (isinstance(error, NoDrop) and not isinstance(first, NoDrop)):
                raise _told(error) from error  # an object that only lies there was itself taken for what stands there
            if isinstance(first, NoDrop):
                raise first from error
            among = f"with {len(faces)} flat face(s) that stay where they are left out of it"
            raise NotMeasured(f"{error}; {among}: {first}") from first


def _told(error: ValueError) -> NotMeasured:
    """A mistake of the recording's, whoever found it."""
    return error if isinstance(error, NotMeasured) else NotMeasured(str(error))


def _look_at(
    recording: Recording,
    finder: FinderSettings,
    faces: list[Face],
    options: MeasureOptions,
    said: str,
    progress: Progress | None,
) -> Seen:
    """The same among what stands there; said: of the camera's noise."""
    beside = Faces(faces)
    survey = look_through(recording, finder, progress, beside=beside)
    _log.info("the object is seen in %d of %d frames", len(survey.sightings), survey.frames)
    still = _still(survey)
    data, cloud = _gathered(recording, survey, still, finder, options, progress, beside)
    body = _rest_shape(data, options)
    laid_s: list[float] = []
    sides: tuple[list[Placed], list[str]] = [], []
    if body.prior not in PLAIN:
        others, laid_s = _other_sides(recording, survey, still, finder, options, beside)
        body, sides = _all_round(body, data, others, options, progress)
    rest_low_m = _low_m(survey, still)
    # Once more, now that its size is known: a hand that holds it is no part of it.
    known = replace(finder, track=replace(finder.track, size_m=widest_m(body.vertices_m)))
    survey = look_through(recording, known, progress, "following the object", beside)
    survey.sightings = cut_to_shape(survey.sightings, body, survey.plane, rest_low_m, progress)
    pokes = [p for p in find_pokes(survey.sightings, rest_low_m) if not _turns(p, laid_s)]
    drops = _drops(survey, rest_low_m, pokes)
    body = _as_it_flies(body, *sides, survey, drops, options, progress)
    survey.sightings = without_fingers(survey.sightings, drops, body, survey.plane)
    moving = [k for drop in drops for k in range(drop.first, drop.last + 1)]
    frame, width_m = (body.rotation, body.translation_m), widest_m(body.vertices_m)
    around = surroundings_of(faces, frame, width_m, survey.sightings, moving)
    poked = [_pokes_in_words(pokes).removeprefix("; ")] if pokes else []
    notes = [*recording.notes, said, *body.notes, *around.notes, *poked]
    return Seen(survey, body, drops, pokes, cloud, finder.noise, notes, around)


def _with_noise(recording: Recording, finder: FinderSettings) -> tuple[FinderSettings, str]:
    """The finder with the camera's own noise, and a line about it."""
    clouds = (frame.cloud for frame in recording if frame.cloud is not None)
    noise, said = learn_noise(islice(clouds, NOISE_FRAMES), finder.noise, finder.plane)
    return replace(finder, noise=noise), said


def _still(survey: Survey) -> list[int]:
    """Numbers of the sightings in which the object lies still."""
    seen, still = survey.sightings, still_part(survey.sightings)
    if not still:
        raise NotMeasured(
            f"the object never lies still on the table for 5 frames in a row in {survey.frames} frames; leave it alone "
            f"for a second at the start{_reasons(survey)}"
        )
    _log.info("it lies still in %d frames, %.2f to %.2f s", len(still), seen[still[0]].time_s, seen[still[-1]].time_s)
    return still


def _pokes_in_words(pokes: list[Poke]) -> str:
    """What is said of pokes, "" where there are none."""
    if not pokes:
        return ""
    times = ", ".join(f"{poke.first_s:.1f} to {poke.last_s:.1f} s" for poke in pokes[:3])
    return f"; it was poked or moved on the table {len(pokes)} time(s), at {times}: left out, as the force is not known"


def _drops(survey: Survey, rest_low_m: float, pokes: list[Poke]) -> list[Drop]:
    """Where the object is dropped; rest_low_m: height of its lower edge at rest [m]."""
    seen = survey.sightings
    drops = find_drops(seen, rest_low_m)
    if not drops:
        highest = max(one.low_m for one in seen) - rest_low_m
        raise NoDrop(
            f"no drop was found: the object rises at most {1e3 * highest:.0f} mm above the table, or does not fall "
            f"freely; drop it from 5 to 20 cm, hands away once it falls, with two frames or more in the air"
            f"{_too_slow(survey.rate_hz)}"
            f"{_pokes_in_words(pokes)}{_reasons(survey)}"
        )
    for drop in drops:
        times = (seen[drop.first].time_s, seen[drop.touch].time_s, seen[drop.last].time_s)
        _log.info("a drop from %.2f s, touching at %.2f s, up to %.2f s; %.2f m/s", *times, drop.speed_m_s)
    return drops


def _too_slow(rate_hz: float) -> str:
    """A remark on frames too far apart to show a fall: from 10 cm it takes 0.14 s."""
    return "" if rate_hz >= _LEAST_RATE_HZ else f" (frames are {1.0 / rate_hz:.2f} s apart; record 30 a second)"


def _reasons(survey: Survey) -> str:
    """Frames without the object, where there are many of them."""
    if survey.refusals.total < 0.2 * survey.frames:
        return ""
    worst = survey.refusals.most_first()[0]
    return f" ({survey.refusals.total} of {survey.frames} frames do not show it, {worst.count} because {worst.example})"


def _gathered(
    recording: Recording,
    survey: Survey,
    still: list[int],
    finder: FinderSettings,
    options: MeasureOptions,
    progress: Progress | None = None,
    beside: KnownThings | None = None,
) -> tuple[ScanData, Cloud]:
    """What a still part shows of the object, and a cloud of it."""
    chosen = [still[k] for k in spread(len(still), SCAN_FRAMES)]
    frames = [recording[survey.sightings[k].index] for k in chosen]
    clouds = [frame.usable() for frame in frames]
    if progress is not None:
        progress("finding its rest shape", 0, 1)
    fine = ScanSettings(target_cells=max(options.cells or CELLS, _FUSION_CELLS))
    try:
        return gather(clouds, fine, finder, [frame.mask for frame in frames], beside), clouds[0]
    except ValueError as error:
        raise NotMeasured(f"no rest shape: {error}") from error


def _other_sides(
    recording: Recording,
    survey: Survey,
    still: list[int],
    finder: FinderSettings,
    options: MeasureOptions,
    beside: KnownThings | None = None,
) -> tuple[list[ScanData], list[float]]:
    """What the other still parts show, where the object lies otherwise than in those before; and when it
    was laid so [s]."""
    seen, middles = survey.sightings, [_middle_m(survey, still)]
    out: list[ScanData] = []
    laid_s: list[float] = []
    for part in sorted(still_parts(survey.sightings), key=len, reverse=True):
        middle = _middle_m(survey, part)
        held = _low_m(survey, part) > _low_m(survey, still) + _LAID_M
        if held or _unrest_m(survey, part) > _UNREST * _unrest_m(survey, still):
            continue
        if len(out) >= _MOST_SIDES or min(np.linalg.norm(middle - other) for other in middles) < _SAME_PLACE_M:
            continue
        try:
            out.append(_gathered(recording, survey, part, finder, options, beside=beside)[0])
        except NotMeasured as error:
            _log.info("the part from %.2f s shows no side of it: %s", seen[part[0]].time_s, error)
            continue
        middles.append(middle)
        laid_s.append(seen[part[0]].time_s)
    return out, [*laid_s, seen[still[0]].time_s] if out else []


def _turns(poke: Poke, laid_s: list[float]) -> bool:
    """Whether what looks like a poke is a hand that turns the object: it lies on another side soon after."""
    return any(0.0 <= time_s - poke.last_s + TOGETHER_S < _TURNED_S for time_s in laid_s)


def _middle_m(survey: Survey, part: list[int]) -> np.ndarray:
    return np.asarray(np.median([survey.sightings[k].middle_m for k in part], axis=0))


def _low_m(survey: Survey, part: list[int]) -> float:
    """Height of the lower edge of what is seen of the object in a part [m]."""
    return float(np.median([survey.sightings[k].low_m for k in part]))


def _unrest_m(survey: Survey, part: list[int]) -> float:
    """How far the object's middle is off where it is in most frames of a part, rms [m]."""
    middle = _middle_m(survey, part)
    return float(np.sqrt(np.mean([np.sum((survey.sightings[k].middle_m - middle) ** 2) for k in part])))


def _all_round(
    body: ScannedBody, first: ScanData, others: list[ScanData], options: MeasureOptions, progress: Progress | None
) -> tuple[ScannedBody, tuple[list[Placed], list[str]]]:
    """The body from all sides of it that were shown and belong together, with these and what is noted of them; or as
    one side shows it, and no sides."""
    if not others:
        return body, ([], [])
    if progress is not None:
        progress("joining its sides", 0, 1)
    try:
        joined, notes = place_sides([first, *others])
        if len(joined) == 1:
            return replace(body, notes=(*body.notes, *notes)), ([], [])
        data, bent_m = without_weight(joined, notes)
        return replace(_on_its_base(_rest_shape(data, options)), bent_std_m=bent_m), (joined, notes)
    except ValueError as error:  # one side that will not do must not lose the others
        said = f"{len(others) + 1} sides of it were shown, and do not make one body ({error}): one of them is used"
        return replace(body, notes=(*body.notes, said)), ([], [])


def _as_it_flies(
    body: ScannedBody,
    sides: list[Placed],
    notes: list[str],
    survey: Survey,
    drops: list[Drop],
    options: MeasureOptions,
    progress: Progress | None,
) -> ScannedBody:
    """The body from all sides with the shape that it has in the air, where its weight does not bend it."""
    if not sides or body.prior in PLAIN:
        return body
    if progress is not None:
        progress("taking off what its weight does", 0, 1)
    found = as_it_flies(sides, body, notes, lambda other: off_in_air_m(survey.sightings, drops, other))
    if found is None:
        return body
    try:
        return replace(_on_its_base(_rest_shape(found[0], options)), bent_std_m=found[1])
    except ValueError as error:
        _log.info("the shape that it has in the air will not do: %s", error)
        return body


def _on_its_base(body: ScannedBody) -> ScannedBody:
    """A body that was seen from below, too, on the table with its lowest point: where it stood it was pressed flat."""
    low_m = np.array([0.0, 0.0, float(body.vertices_m[:, 2].min())])
    grid = replace(body.grid, origin_m=body.grid.origin_m - low_m)
    detail = None if body.detail is None else replace(body.detail, origin_m=body.detail.origin_m - low_m)
    return replace(body, vertices_m=body.vertices_m - low_m, grid=grid, detail=detail)


def _rest_shape(data: ScanData, options: MeasureOptions) -> ScannedBody:
    try:
        body = choose_body(data, ScanSettings(target_cells=options.cells or CELLS))
    except ValueError as error:
        raise NotMeasured(f"no rest shape: {error}") from error
    return with_cells(body, CELLS_OF_OTHERS) if options.cells is None and body.prior not in PLAIN else body
