"""Plots as SVG text, without a library, a script or anything from elsewhere.

    from helix.plots import Axis, Line, lines
    plot = lines("Hit rate", [Line(name="helix", points=((0, 0.1), (1, 0.8)))],
                 x=Axis(label="time", kind="seconds"), y=Axis(label="hit rate", kind="share"))
    plot.figure()   # an HTML figure for a page with `style()` in it: the drawing, and its data as a table below
    plot.svg()      # a file of its own

`gantt` draws what each worker did when, `lines` curves with ranges, `occupancy` layers that add up to a whole, `bars`
groups of bars with ranges. Colours follow the reader's choice of light or dark; every plot says in words what it shows,
and its data can be read as a table.
"""

from helix.plots.bars import Bar as Bar
from helix.plots.bars import bars as bars
from helix.plots.gantt import Lane as Lane
from helix.plots.gantt import Span as Span
from helix.plots.gantt import gantt as gantt
from helix.plots.lines import Line as Line
from helix.plots.lines import Mark as Mark
from helix.plots.lines import lines as lines
from helix.plots.occupancy import Layer as Layer
from helix.plots.occupancy import occupancy as occupancy
from helix.plots.plot import Plot as Plot
from helix.plots.plot import style as style
from helix.plots.scale import Axis as Axis
