"""The page itself: sections of HTML, joined with style, script and data into one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np

from soft_estimator.pictures.wording import as_interval, choose_unit, plain_name, rounded, seconds, with_deviation
from soft_estimator.report.content import ReportContent, ReportParameter, Series
from soft_estimator.report.pictures import still_pictures
from soft_estimator.report.plots import interval_bar, line_plot
from soft_estimator.report.view3d import plotly_packed, scene_packed, shown_moments


def write_report(path: Path | str, content: ReportContent) -> Path:
    """Write the report as one self-contained HTML file; an older one is replaced as a whole. Returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(report_html(content), encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def report_html(content: ReportContent) -> str:
    """The page as text."""
    library = plotly_packed() if content.moments else None
    body = "\n".join(
        part
        for part in (
            _head(content),
            _parameters(content),
            _view(content, library is not None) if content.moments else "",
            _plots("Parameters over time" if _timed(content.series) else "The search", content.series),
            _plots("Cost and residual" if content.residual else "Cost", _present(content.cost, content.residual)),
            _tables(content),
            _configuration(content.configuration),
            "<footer>Made by soft_estimator. This file needs no network: send it, keep it, print it.</footer>",
        )
        if part
    )
    scripts = ""
    if library is not None:
        data = f'<script type="text/plain" id="scene-data">{scene_packed(content)}</script>'
        code = f'<script type="text/plain" id="plotly-code">{library}</script>'
        scripts = f"{data}\n{code}\n<script>{_asset('page.js')}</script>"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(content.title)} – soft_estimator</title>\n"
        f'<link rel="icon" href="data:,">\n<style>{_asset("page.css")}</style>\n</head>\n'
        f"<body>\n{body}\n{scripts}\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("soft_estimator.report").joinpath(name).read_text(encoding="utf-8")


def _head(content: ReportContent) -> str:
    notes = [f"<li>{escape(line)}</li>" for line in warnings_of(content)]
    if not notes and content.parameters:
        notes = ['<li class="good">The data could tell every parameter that was asked for.</li>']
    listed = f'<ul class="notes">{"".join(notes)}</ul>' if notes else ""
    return f'<header><h1>{escape(content.title)}</h1><p class="quiet">{escape(content.subtitle)}</p>{listed}</header>'


def warnings_of(content: ReportContent) -> list[str]:
    """What a reader must know: the content's own warnings, then what was not observable and why."""
    lines = list(content.warnings)
    for p in content.parameters:
        if not p.observable:
            lines.append(f"{plain_name(p.name)} was not observable: {p.reason or 'the data do not depend on it'}.")
        elif p.truth is not None and p.std > 0 and abs(p.value - p.truth) > 4 * p.std:
            off = abs(p.value - p.truth) / p.std
            lines.append(
                f"{plain_name(p.name)} is {off:.0f} standard deviations from its true value: "
                "its interval is too narrow here."
            )
    return lines


def _parameters(content: ReportContent) -> str:
    if not content.parameters:
        return ""
    cards = "\n".join(_card(parameter) for parameter in content.parameters)
    known = any(p.truth is not None for p in content.parameters)
    truth = '<span class="k-truth">truth</span>' if known else ""
    key = f'<p class="key"><span class="k-band">95 % interval</span>{truth}</p>'
    return f'<section id="estimates"><h2>What was estimated</h2>{key}<div class="cards">{cards}</div></section>'


def _card(p: ReportParameter) -> str:
    factor, unit = choose_unit(p.unit, [p.value, p.truth or 0.0])
    value, std = with_deviation(p.value / factor, p.std / factor)
    places = len(std.partition(".")[2]) if "·" not in std and "e" not in std else 4
    low, high = (f"{v / factor:.{places}f}".replace("-", "−") for v in (p.low, p.high))
    rows = [("95 % interval", f"{low} … {high} {unit}")]
    if p.mostly:
        rows.append(("it is so wide", p.mostly))
    if p.truth is not None:
        off = p.value - p.truth
        logarithmic = p.unit in ("Pa", "s", "1/s", "kg/m^3", "") and p.truth > 0
        error = f"{rounded(100 * off / p.truth, 2)} %" if logarithmic else f"{rounded(off / factor, 2)} {unit}"
        rows.append(("truth", f"{rounded(p.truth / factor)} {unit} (off by {'+' * (off > 0)}{error})"))
    if p.guess is not None:
        guess_factor, guess_unit = choose_unit(p.unit, [p.guess]) if p.guess else (factor, unit)
        rows.append(("started from", f"{rounded(p.guess / guess_factor)} {guess_unit}"))
    listed = "".join(f"<dt>{escape(key)}</dt><dd>{escape(text)}</dd>" for key, text in rows)
    spread = f"({low} … {high})" if as_interval(p.value, p.low, p.high) else f"± {std}"
    badge = (
        '<span class="badge yes">observed</span>' if p.observable else '<span class="badge no">not observable</span>'
    )
    reason = f'<p class="reason">{escape(p.reason[:1].upper() + p.reason[1:])}.</p>' if p.reason else ""
    return (
        f'<article class="card" data-parameter="{escape(p.name)}"><h3><span>{escape(plain_name(p.name))}</span>{badge}'
        f'</h3><p class="value">{value} <small>{spread} {escape(unit)}</small></p>{interval_bar(p)}'
        f"<dl>{listed}</dl>{reason}</article>"
    )


def _view(content: ReportContent, interactive: bool) -> str:
    moments = shown_moments(content)
    stills = "".join(
        f'<figure><img src="{url}" alt="the body at {time_s:.3f} s"><figcaption>{time_s:.3f} s</figcaption></figure>'
        for time_s, url in still_pictures(content)
    )
    missing = "" if interactive else "Install plotly to get the 3D view: pip install plotly. These are still pictures."
    shown = "" if interactive else ' class="no-webgl"'
    residuals, strains = (any(getattr(m, n) is not None for m in moments) for n in ("residual_m", "strain"))
    screen = _screen(moments[-1].time_s, len(moments), residuals, strains, any(m.plane for m in moments))
    size = np.ptp(moments[0].vertices_m, axis=0)
    about = f"The body measures {' × '.join(f'{1e3 * s:.0f}' for s in size)} mm. "
    about += "Grey: no point was seen there." if residuals else ""
    return (
        f'<section id="twin"{shown}><h2>Observed points against the twin</h2>'
        f'{screen if interactive else ""}<div class="stills">{stills}</div>'
        f'<p class="quiet" id="why-no-view">{missing}</p>{_ramps(content, residuals, strains)}'
        f'<p class="quiet">{about}</p></section>'
    )


def _screen(time_s: float, count: int, residuals: bool, strains: bool, plane: bool) -> str:
    kinds = [("residual", "distance of points")] * residuals + [("strain", "strain")] * strains + [("plain", "nothing")]
    options = "".join(f'<option value="{key}">{text}</option>' for key, text in kinds)
    boxes = [("points", "points"), ("body", "twin")] + [("plane", "plane")] * plane
    checks = "".join(f'<label><input type="checkbox" id="show-{key}" checked> {text}</label>' for key, text in boxes)
    return (
        '<div class="screen"><div id="view"><p class="wait">unpacking the 3D view …</p></div>'
        '<div class="controls"><div class="time"><button id="play" type="button">Play</button>'
        f'<input type="range" id="moment" min="0" max="{count - 1}" value="{count - 1}" step="1" aria-label="moment">'
        f'<output id="clock" for="moment">{time_s:.3f} s</output></div>'
        f'<label>colour by <select id="colour">{options}</select></label>{checks}</div></div>'
    )


def _ramps(content: ReportContent, residuals: bool, strains: bool) -> str:
    from soft_estimator.report.view3d import residual_scale_m, strain_scale

    moments = list(content.moments)
    full_mm, strain = 1e3 * residual_scale_m(moments), strain_scale(moments)
    inside = f"points {rounded(full_mm, 2)} mm inside"
    return (
        f'<p class="ramp" id="ramp-residual"{"" if residuals else " hidden"}>{inside}<i class="residual"></i>'
        f"{rounded(full_mm, 2)} mm outside the twin</p>"
        f'<p class="ramp" id="ramp-strain"{" hidden" if residuals or not strains else ""}>no strain'
        f'<i class="strain"></i>{rounded(strain, 2)}</p>'
    )


def _present(*series: Series | None) -> list[Series]:
    return [s for s in series if s is not None]


def _timed(series: Sequence[Series]) -> bool:
    return any(s.in_seconds for s in series)


def _plots(title: str, series: Sequence[Series]) -> str:
    if not series:
        return ""
    key = "" if title.startswith("Cost") else '<span class="k-value">estimate</span>'
    key += '<span class="k-band">95 % interval</span>' if any(s.low is not None for s in series) else ""
    key += '<span class="k-truth">truth</span>' if any(s.truth is not None for s in series) else ""
    figures = "".join(f'<figure class="card" style="margin:0">{line_plot(s)}</figure>' for s in series)
    return f'<section><h2>{escape(title)}</h2><p class="key">{key}</p><div class="plots">{figures}</div></section>'


def _tables(content: ReportContent) -> str:
    out = ""
    rows = [(what, seconds(value)) for what, value in content.timing]
    for title, pairs in (("Data and fit", list(content.facts)), ("Time spent", rows)):
        if pairs:
            cells = "".join(f"<tr><td>{escape(what)}</td><td>{escape(text)}</td></tr>" for what, text in pairs)
            out += f"<section><h2>{title}</h2><table>{cells}</table></section>"
    return out


def _configuration(text: str) -> str:
    if not text:
        return ""
    inner = f"<details><summary>every setting</summary><pre>{escape(text)}</pre></details>"
    return f"<section><h2>Configuration</h2>{inner}</section>"
