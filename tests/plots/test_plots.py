"""Plots: well formed, whole, told in words and as a table, and drawn where the values are."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from helix.plots import Axis, Bar, Lane, Layer, Line, Mark, Plot, Span, bars, gantt, lines, occupancy, style
from helix.plots.scale import Scale, number

SVG = "{http://www.w3.org/2000/svg}"
SECONDS = Axis(label="time", kind="seconds")
SHARE = Axis(label="hit rate", kind="share")


def drawn(plot: Plot) -> ElementTree.Element:
    """The drawing, read as XML; every coordinate in it is a number within the drawing."""
    root = ElementTree.fromstring(plot.svg())
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == f"{plot.title}. {plot.says}"
    for node in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            if name in node.attrib and not node.get("transform"):
                assert -1 <= float(node.attrib[name]) <= plot.width + 1, ElementTree.tostring(node)
        for name in ("y", "y1", "y2", "cy", "height", "width"):
            if name in node.attrib:
                assert 0 <= float(node.attrib[name]) <= max(plot.height, plot.width)
        for found in re.findall(r"-?[\d.]+", node.get("points", "") + node.get("d", "")):
            assert float(found) >= 0
    assert "nan" not in plot.svg().lower().replace("finance", "")
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def test_lines_are_where_their_values_are() -> None:
    plot = lines(
        "Hits",
        [
            Line(name="one", points=((0.0, 0.0), (10.0, 0.5), (20.0, None), (30.0, 1.0), (40.0, 0.5))),
            Line(name="two", points=((0.0, 1.0), (40.0, 0.25)), low=(0.9, 0.2), high=(1.0, 0.3), dots=True),
        ],
        x=SECONDS,
        y=SHARE,
        marks=[Mark(at=20.0, name="middle")],
    )
    root = drawn(plot)
    polylines = [node.attrib["points"] for node in root.iter(f"{SVG}polyline")]
    # The gap makes two parts of the first line.
    assert [len(points.split()) for points in polylines] == [2, 2, 2]
    first = [tuple(map(float, pair.split(","))) for pair in polylines[0].split()]
    second = [tuple(map(float, pair.split(","))) for pair in polylines[1].split()]
    # 0 lies at the bottom, 1 at the top, .5 in the middle; time goes to the right.
    assert first[0][1] > first[1][1] > second[0][1]
    assert first[1][1] == pytest.approx((first[0][1] + second[0][1]) / 2, abs=0.2)
    assert first[0][0] < first[1][0] < second[0][0]
    assert len(list(root.iter(f"{SVG}circle"))) == 2
    assert len([node for node in root.iter(f"{SVG}polygon") if "range" in node.attrib["class"]]) == 1
    assert {"one", "two", "middle", "100%", "time (s)", "hit rate"} <= set(texts(root))
    assert "one goes from 0% at 0 s to 50% at 40 s, at most 100%" in plot.says
    assert plot.heads == ("time", "one", "two")
    assert plot.rows[1] == ("10 s", "50%", "")
    assert plot.rows[2] == ("20 s", "", "")


def test_a_gantt_stacks_shares_and_adds_times_up() -> None:
    spans = (
        Span(begin=0.0, end=60.0, kind="prefill", share=0.25),
        Span(begin=0.0, end=60.0, kind="decode", share=0.75),
        Span(begin=120.0, end=600.0, kind="decode"),
    )
    plot = gantt("Work", [Lane(name="rank 0", spans=spans), Lane(name="rank 1", spans=())], x=SECONDS)
    root = drawn(plot)
    assert "rank 0: prefill 0.25 min, decode 8.75 min; rank 1: prefill 0 min, decode 0 min; to 10 min." in plot.says
    paths = [node.attrib["d"] for node in root.iter(f"{SVG}path")]
    assert [path.count("Z") for path in paths] == [1, 2]
    heights = [float(v) - float(f) for f, v in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", "".join(paths))]
    assert [round(-height, 1) for height in heights] == [6.5, 19.5, 26.0]
    assert plot.rows == (("rank 0", "0.25", "8.75"), ("rank 1", "0", "0"))


def test_a_divided_lane_is_as_high_as_its_parts_as_far_as_there_is_room() -> None:
    spans = tuple(Span(begin=float(slot), end=9.0, kind="x", slot=slot) for slot in range(8))
    plot = gantt("Calls", [Lane(name="a", spans=spans, slots=8), Lane(name="b", spans=spans[:1])], x=SECONDS)
    root = drawn(plot)
    lanes = [node.attrib for node in root.iter(f"{SVG}rect") if node.attrib["class"] == "lane"]
    assert [float(lane["height"]) for lane in lanes] == [8 * 7, 26]
    assert float(lanes[1]["y"]) == float(lanes[0]["y"]) + 8 * 7 + 8
    first = next(iter(root.iter(f"{SVG}path"))).attrib["d"]
    tops = [float(top) - float(lanes[0]["y"]) for top in re.findall(r"V([\d.]+)H", first)]
    # A pixel of each part is left free above its span.
    assert tops == [7.0 * slot + 1 for slot in range(8)]
    many = [Lane(name=f"{number}", spans=spans, slots=64) for number in range(16)]
    assert gantt("Many", many, x=SECONDS).height < 16 * (40 + 8) + 100


def test_layers_stand_on_one_another() -> None:
    plot = occupancy(
        "Cache",
        [0.0, 1.0, 2.0],
        [Layer(name="locked", values=(0.0, 60.0, 100.0)), Layer(name="free", values=(100.0, 40.0, 0.0), rest=True)],
        x=SECONDS,
        y=Axis(label="tokens", most=100.0),
    )
    root = drawn(plot)
    polygons = [node.attrib["points"].split() for node in root.iter(f"{SVG}polygon")]
    below, above = polygons
    assert [node.attrib["class"] for node in root.iter(f"{SVG}polygon")] == ["area c0", "area rest"]
    assert [node.attrib["class"] for node in root.iter(f"{SVG}rect")] == ["fill c0", "fill rest"]
    # What is above begins where what is below ends, and ends at the top.
    assert below[:3] == above[:2:-1]
    assert len({point.split(",")[1] for point in above[:3]}) == 1
    assert "locked 53.3 in the mean, 100 at most" in plot.says
    with pytest.raises(ValueError, match="layer free has 1 values for 2 times"):
        occupancy("No", [0.0, 1.0], [Layer(name="free", values=(1.0,))], x=SECONDS, y=SECONDS)


def test_bars_are_as_high_as_their_values() -> None:
    plot = bars(
        "Makespans",
        ["w1", "w2"],
        [
            Bar(name="helix", values=(10.0, 20.0), low=(9.0, 18.0), high=(11.0, 22.0)),
            Bar(name="other", values=(40.0, None)),
        ],
        y=Axis(label="makespan", kind="seconds"),
        x="workload",
        reference=20.0,
    )
    root = drawn(plot)
    rects = [node for node in root.iter(f"{SVG}rect") if node.find(f"{SVG}title") is not None]
    heights = [float(node.attrib["height"]) for node in rects]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.02)
    assert heights[2] == pytest.approx(2 * heights[0], rel=0.02)
    assert [node.findtext(f"{SVG}title") for node in rects] == [
        "w1, helix: 10 s", "w1, other: 40 s", "w2, helix: 20 s"
    ]  # fmt: skip
    assert len([node for node in root.iter(f"{SVG}line") if node.attrib["class"] == "whisker"]) == 2
    assert plot.rows == (("w1", "10 s", "40 s"), ("w2", "20 s", ""))
    with pytest.raises(ValueError, match="a value for each of 2 groups"):
        bars("No", ["a", "b"], [Bar(name="x", values=(1.0,))], y=SECONDS)


def test_nothing_to_draw_is_drawn() -> None:
    for plot in (
        lines("Empty", [], x=SECONDS, y=SHARE),
        lines("Gap", [Line(name="gap", points=((1.0, None),))], x=SECONDS, y=SHARE),
        lines("One", [Line(name="one", points=((1.0, 0.5),))], x=SECONDS, y=Axis(label="s", kind="seconds", log=True)),
        gantt("Empty", [], x=SECONDS),
        occupancy("Empty", [], [], x=SECONDS, y=SHARE),
        bars("Empty", [], [], y=SHARE),
    ):
        drawn(plot)
        assert plot.says


def test_scales() -> None:
    log = Scale(Axis(label="GPUs", log=True, ticks=(1.0, 2.0, 4.0, 8.0)), [1.0, 8.0], 0.0, 300.0)
    assert [round(log.at(value)) for value in log.ticks] == [0, 100, 200, 300]
    hours = Scale(SECONDS, [0.0, 40_000.0], 0.0, 100.0)
    assert hours.label == "time (h)"
    assert [hours.tick(value) for value in hours.ticks] == ["0", "5", "10", "15"]
    assert hours.at(100_000.0) == 100.0
    assert Scale(Axis(label="n"), [7.0], 0.0, 1.0).ticks[-1] >= 7.0
    assert Scale(SHARE, [0.2], 0.0, 1.0).high == 1.0
    assert [number(value) for value in (0.0, 0.035, 4.25, 35.0, 1234.0, 2.1e6, 3e9)] == [
        "0", "0.035", "4.25", "35", "1,234", "2.1M", "3G"
    ]  # fmt: skip


def test_a_figure_can_be_read_without_its_drawing() -> None:
    name = "<b>&amp;\x07"
    plot = lines(name, [Line(name=name, points=tuple((float(at), 0.5) for at in range(1000)))], x=SECONDS, y=SHARE)
    figure = plot.figure()
    assert "<b>" not in figure
    assert "\x07" not in figure
    assert figure.count('tabindex="0"') == 2
    assert "<details><summary>Data of this plot</summary>" in figure
    assert "Every 5 points, one row." in figure
    assert figure.count("<tr>") == 201
    for outside in ("http://", "https://", "url(", "@import", "<script", "href"):
        assert outside not in figure.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "prefers-color-scheme: dark" in style()


def test_equal_data_makes_equal_bytes_in_every_process() -> None:
    code = (
        "from helix.plots import *\n"
        "print(lines('t', [Line(name=n, points=((0.0, .1), (3.0, .7))) for n in ('b', 'a')],"
        " x=Axis(label='x', kind='seconds'), y=Axis(label='y', kind='share')).svg())"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("0", "7")
    }
    assert len(made) == 1
