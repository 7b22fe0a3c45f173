"""Empty Bokeh plots, which curves.js fills.

One plot has a linear y axis and one a logarithmic one, each with as many slots (line, points, band) as the largest
group has seed groups; choosing another quantity, x axis or group fills the same slots, so that the page stays small
whatever the sweep holds.
"""

from __future__ import annotations

from typing import Any, Literal

MOST_DROPS = 6


def plots(slots: int) -> dict[str, Any]:
    """Two empty plots as Bokeh writes them for its script: ``linear`` and ``log``."""
    from bokeh.embed import json_item

    return {"linear": json_item(_plot("linear", slots)), "log": json_item(_plot("log", slots))}


def _plot(scale: Literal["linear", "log"], slots: int) -> Any:
    from bokeh.models import ColumnDataSource, HoverTool, Legend, LegendItem, Span
    from bokeh.plotting import figure

    plot: Any = figure(
        height=440, min_width=280, sizing_mode="stretch_width", y_axis_type=scale, name=scale,
        tools="pan,box_zoom,wheel_zoom,reset,save", toolbar_location="above", active_drag="box_zoom",
        background_fill_color=None, border_fill_color=None,
    )  # fmt: skip
    items, lines, dots = [], [], []
    for slot in range(slots):
        source = ColumnDataSource({name: [] for name in ("x", "mean", "low", "high")}, name=f"source{slot}")
        band = plot.varea("x", "low", "high", source=source, fill_alpha=0.11, name=f"band{slot}")
        line = plot.line("x", "mean", source=source, line_width=2, name=f"line{slot}")
        dot = plot.scatter("x", "mean", source=source, size=7, name=f"dot{slot}")
        items.append(LegendItem(label=str(slot), renderers=[line, dot, band], name=f"item{slot}"))
        lines.append(line)
        dots.append(dot)
    for each in (plot.x_range, plot.y_range):  # fitted to the curves: an interval over two seeds would flatten them
        each.renderers, each.only_visible = lines, True
    for number in range(MOST_DROPS):
        style: dict[str, Any] = {"line_color": "#777777", "line_dash": [5, 4], "line_width": 1}
        plot.add_layout(Span(dimension="height", name=f"drop{number}", **style))
    legend = Legend(items=items, click_policy="hide", name="legend", border_line_color=None, background_fill_color=None,
                    label_text_font_size="12px", glyph_width=28, spacing=10, location="center", ncols=4)  # fmt: skip
    plot.add_layout(legend, "below")
    tips = [("", "$name"), ("x", "@x"), ("mean", "@mean"), ("95 % interval", "@low to @high")]
    plot.add_tools(HoverTool(renderers=dots, point_policy="snap_to_data", tooltips=tips))
    for axis in (plot.xaxis, plot.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "13px"
        axis.major_label_text_font_size = "12px"
        axis.axis_line_color = axis.major_tick_line_color = "#444444"
        axis.minor_tick_line_color = None
    plot.grid.grid_line_color = "#e4e4e4"
    plot.outline_line_color = None
    plot.toolbar.logo = None
    return plot
