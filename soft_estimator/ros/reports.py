"""Estimates as messages: diagnostics that people and monitors read, and the state that the digital twin takes over."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension

from soft_estimator.estimation.fitting.uncertainty import Estimate, shown_labels
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.parameters import Parameters
from soft_estimator.pictures.wording import stated

_BEGAN = "scene_began"  # stamp of the scene's start among the blocks of a state
_MEMORY = "memory/"  # before the names of what terms remember, in the blocks of a state

OK, WARN, ERROR, STALE = (DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR, DiagnosticStatus.STALE)


def key_values(values: dict[str, Any]) -> list[KeyValue]:
    """Values as text; numbers with all their digits."""
    return [KeyValue(key=key, value=repr(float(v)) if isinstance(v, float) else str(v)) for key, v in values.items()]


def shown_names(parameters: tuple[Estimate, ...]) -> list[str]:
    """Names to publish under."""
    return shown_labels([p.label for p in parameters])


def topic_of(name: str) -> str:
    """A parameter's name as part of a topic: plane_normal[1] → plane_normal_1."""
    return name.replace("[", "_").replace("]", "")


@dataclass(frozen=True)
class Delay:
    """How far an estimate is behind the present: its age when it is published [s], whether that is too late, and how
    many frames there was no time for so far."""

    age_s: float
    late: bool
    frames_skipped: int


def estimate_message(header: Header, estimate: LiveEstimate, scene: str, delay: Delay | None = None) -> DiagnosticArray:
    """One status a parameter, and one for the window as a whole."""
    statuses = [_window_status(estimate, scene, delay)]
    for name, p in zip(shown_names(estimate.parameters), estimate.parameters):
        level = STALE if estimate.status == "lost" else OK if p.observable else WARN
        text = stated(p.value, p.std, p.low, p.high, p.unit)
        if estimate.status == "lost":
            text = f"object lost; held: {text}"
        elif not p.observable:
            text = f"not observable: {p.reason}"
        row = {"value": p.value, "std": p.std, "low": p.low, "high": p.high, "unit": p.unit}
        values = key_values({**row, "observable": str(p.observable).lower(), "reason": p.reason, "mostly": p.mostly})
        statuses.append(DiagnosticStatus(level=level, name=name, message=text, hardware_id=scene, values=values))
    return DiagnosticArray(header=header, status=statuses)


def _window_status(estimate: LiveEstimate, scene: str, delay: Delay | None) -> DiagnosticStatus:
    late = delay is not None and delay.late
    sound = estimate.verdict.fits and estimate.settled and not late
    level = {"tracking": OK if sound else WARN, "lost": STALE}.get(estimate.status, WARN)
    values = key_values(
        {
            "status": estimate.status,
            "fits": str(estimate.verdict.fits).lower(),
            "misfit_reason": estimate.verdict.reason,
            "settled": str(estimate.settled).lower(),
            "frames_in_window": estimate.frames_in_window,
            "noise_scale": estimate.noise_scale,
            "cost": estimate.cost,
            "rms_residual_m": estimate.rms_residual_m,
            "update_s": estimate.seconds,
            **({} if delay is None else {"age_s": delay.age_s, "frames_skipped": delay.frames_skipped}),
        }
    )
    old = () if delay is None or not late else (f"{delay.age_s:.1f} s old: work is late",)
    message = "; ".join((estimate.status, *old, *estimate.notes))
    return DiagnosticStatus(level=level, name="window", message=message, hardware_id=scene, values=values)


def rows_message(header: Header, rows: list[tuple[str, float, str]], scene: str, **extra: Any) -> DiagnosticArray:
    """Ground truth: one status a parameter (name, value, unit), and one named `scene` for the rest."""
    statuses = [
        DiagnosticStatus(
            level=OK, name=name, message=f"{value:.6g} {unit}".strip(), hardware_id=scene,
            values=key_values({"value": value, "unit": unit}),
        )
        for name, value, unit in rows
    ]  # fmt: skip
    statuses.append(
        DiagnosticStatus(level=OK, name="scene", message=scene, hardware_id=scene, values=key_values(extra))
    )
    return DiagnosticArray(header=header, status=statuses)


def values_in(message: DiagnosticArray) -> dict[str, dict[str, str]]:
    """The values of every status by its name; `level` is added."""
    return {
        s.name: {**{v.key: v.value for v in s.values}, "level": str(int.from_bytes(s.level, "little"))}
        for s in message.status
    }


def state_message(stamp: Time, estimate: LiveEstimate, began: Time | None = None) -> Float64MultiArray:
    """Parameters and nodal state as one array of labelled blocks, in the order of its dimensions.

    The message has no header, so the stamp is the first block: seconds and nanoseconds. began: stamp of the scene's
    start, where tools follow a path that counts from there.
    """
    stamps = [("stamp", stamp)] if began is None else [("stamp", stamp), (_BEGAN, began)]
    blocks: list[tuple[str, np.ndarray]] = [(name, np.array([t.sec, t.nanosec], np.float64)) for name, t in stamps]
    for name, value in estimate.values.values.items():
        blocks.append((name, np.asarray(value, dtype=np.float64).ravel()))
    blocks += [("u_m", estimate.u_m), ("v_m_s", estimate.v_m_s), ("a", estimate.a)]
    blocks += [(f"{_MEMORY}{name}", part) for name, part in estimate.memory.items()]
    message = Float64MultiArray()
    for name, values in blocks:
        message.layout.dim.append(MultiArrayDimension(label=name, size=values.size, stride=1))
    data = array("d")
    data.frombytes(np.concatenate([np.asarray(v, dtype=np.float64).ravel() for _, v in blocks]).tobytes())
    message.data = data
    return message


def state_of(message: Float64MultiArray) -> tuple[Time, Parameters, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Stamp, parameters, and u [m], v [m/s], a of the nodes, (N, 3) each."""
    blocks, data = _blocks_of(message), message.data
    at = sum(dim.size for dim in message.layout.dim)
    required = (p.name for p in REGISTRY if not p.term)  # what belongs to a term is there where the model has it
    missing = [n for n in ("stamp", "u_m", "v_m_s", "a", *required) if n not in blocks]
    if missing or at != len(data):
        raise ValueError(
            f"estimate_state has {len(data)} numbers for blocks of {at} and lacks {', '.join(missing) or 'none'}; "
            "is its sender of the same version?"
        )
    values: dict[str, Any] = {}
    for name, block in blocks.items():
        if name in REGISTRY:
            values[name] = float(block[0]) if REGISTRY[name].shape == "scalar" else block.copy()
    u, v, a = (blocks[n].reshape(-1, 3).copy() for n in ("u_m", "v_m_s", "a"))
    sec, nanosec = blocks["stamp"]
    return Time(sec=int(sec), nanosec=int(nanosec)), Parameters(**values), (u, v, a)


def memory_of(message: Float64MultiArray) -> dict[str, np.ndarray]:
    """What the model's terms remember in a message that `state_of` has taken, by name, each in one row of numbers."""
    blocks = _blocks_of(message)
    return {name.removeprefix(_MEMORY): part.copy() for name, part in blocks.items() if name.startswith(_MEMORY)}


def began_of(message: Float64MultiArray) -> float | None:
    """The stamp of the scene's start [s] in such a message; None where none is told."""
    began = _blocks_of(message).get(_BEGAN)
    return None if began is None else float(began[0] + 1e-9 * began[1])


def _blocks_of(message: Float64MultiArray) -> dict[str, np.ndarray]:
    data, at, blocks = np.frombuffer(message.data, dtype=np.float64), 0, {}
    for dim in message.layout.dim:
        blocks[dim.label] = data[at : at + dim.size]
        at += dim.size
    return blocks


def estimate_json(estimate: LiveEstimate, scene: str, counters: dict[str, int]) -> str:
    """What `save` writes."""

    def plain(value: float) -> float | None:
        return value if math.isfinite(value) else None

    rows = [
        {"name": name, "unit": p.unit, "value": plain(p.value), "std": plain(p.std), "low": plain(p.low),
         "high": plain(p.high), "observable": p.observable, "reason": p.reason, "mostly": p.mostly}
        for name, p in zip(shown_names(estimate.parameters), estimate.parameters)
    ]  # fmt: skip
    whole = {
        "scene": scene,
        "stamp_s": estimate.stamp_s,
        "status": estimate.status,
        "fits": estimate.verdict.fits,
        "misfit_reason": estimate.verdict.reason,
        "settled": estimate.settled,
        "parameters": rows,
        "noise_scale": plain(estimate.noise_scale),
        "rms_residual_m": plain(estimate.rms_residual_m),
        "frames_in_window": estimate.frames_in_window,
        "counters": counters,
        "notes": list(estimate.notes),
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"
