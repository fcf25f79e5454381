"""Figures: what is drawn and what is not, how contestants are told apart, what is written."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from gradgroup.experiments.figures import (
    Curve,
    Frame,
    Line,
    Panel,
    idea_info,
    plot_idea,
    plot_panels,
    save,
)
from gradgroup.experiments.figures._frames import limits
from gradgroup.experiments.figures._idea import gradient, value
from gradgroup.experiments.figures._looks import CONTESTANTS, OTHERS, looks

RATES = tuple(10.0 ** (k / 2) for k in range(-10, 3))
FRAME = Frame("Learning rate", "Mean loss over the training phase", x_scale="log", highest=10.0)
BASELINES = ("SGD", "Nesterov", "Adam", "RMSprop", "L-BFGS")
LINES = (
    Line("GG (paper)", 0.92, 0.02),
    Line("GradientGrouping", 0.40, 0.006),
    Line("AutoGrouping", 0.316, 0.002),
)


def valley(name: str, best: float, low: float = 0.33) -> Curve:
    """A baseline: lowest at its best rate, at a loss of hundreds far from it."""
    mean = tuple(low * math.exp(0.4 * math.log10(x / best) ** 2) for x in RATES)
    return Curve(name, RATES, mean, tuple(0.05 * m for m in mean))


def blown_up(name: str = "L-BFGS", number: int = 3) -> Curve:
    rates = tuple(10.0**k for k in range(-5, 2))
    finite = (1.6, 0.65, 0.40, 2.3, 2.5, 2.7, 2.9)[: len(rates) - number]
    return Curve(name, rates, (*finite, *(math.inf,) * number), (0.02,) * len(rates))


def sensitivity() -> Panel:
    curves = [valley(name, 10.0**-k) for k, name in enumerate(BASELINES[:-1])]
    title = "EMNIST letters (20,384 parameters)"  # the longest one
    return Panel(title, (*curves, blown_up()), LINES, note="5 seeds")


def drawn(axes: Axes, name: str) -> Line2D:
    (found,) = (line for line in axes.lines if line.get_label() == name)
    return found


def crosses(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_marker() == "x"]


def legend_of(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def shown_ticks(figure: Figure, letter: str) -> list[str]:
    """What is written at the ticks of the first panel, of those that are in view."""
    figure.draw_without_rendering()
    axis = getattr(figure.axes[0], f"{letter}axis")
    low, high = axis.get_view_interval()
    ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [text.get_text() for place, text in ticks if low <= place <= high]


# How contestants are told apart.


def test_contestants_are_told_apart_by_colour_and_marker_and_dash() -> None:
    found = [*CONTESTANTS.values(), *OTHERS]
    assert len({(look.colour, look.marker, look.dash, look.hollow) for look in found}) == len(found)
    assert len({(look.colour, look.dash, look.width) for look in found}) == len(found)


def test_contestants_are_told_apart_in_grey() -> None:
    found = CONTESTANTS.values()
    assert len({look.marker for look in found}) == len(found)
    for one, other in combinations(found, 2):
        same_stroke = (one.dash, one.width) == (other.dash, other.width)
        assert not same_stroke or abs(brightness(one.colour) - brightness(other.colour)) > 0.2


def brightness(colour: str) -> float:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_a_contestant_looks_the_same_in_all_company() -> None:
    alone, among = looks(["Adam"]), looks(["other", "SGD", "Adam", "another"])
    assert alone["Adam"] == among["Adam"]


def test_other_names_take_what_is_left_in_the_order_of_their_appearance() -> None:
    found = looks(["64 samples in all", "AutoGrouping", "best baseline", "64 samples in all"])
    assert found["64 samples in all"] == OTHERS[0]
    assert found["best baseline"] == OTHERS[1]


def test_the_paper_s_algorithm_is_a_black_line_with_a_grey_band() -> None:
    (axes,) = plot_panels([Panel("", (), LINES)], FRAME).axes
    line = drawn(axes, "GG (paper)")
    assert (line.get_color(), line.get_linestyle(), line.get_marker()) == ("#000000", "-", "None")
    band = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (band.y0, band.y1) == (pytest.approx(0.90), pytest.approx(0.94))
    assert to_hex(axes.patches[0].get_facecolor()) == "#000000"


# What is drawn.


def test_a_curve_shows_its_means_and_a_band_of_a_standard_deviation() -> None:
    curve = Curve("SGD", (1.0, 2.0), (0.5, 0.4), (0.1, 0.05))
    (axes,) = plot_panels([Panel("", (curve,))], Frame("Epochs", "Loss")).axes
    assert drawn(axes, "SGD").get_xydata().tolist() == [[1.0, 0.5], [2.0, 0.4]]
    corners = axes.collections[0].get_paths()[0].vertices
    for corner in ((1.0, 0.6), (1.0, 0.4), (2.0, 0.45), (2.0, 0.35)):
        assert np.isclose(corners, corner).all(axis=1).any()


def test_infinite_means_are_crosses_at_the_top_in_the_curve_s_colour() -> None:
    (axes,) = plot_panels([Panel("", (blown_up(number=2),), LINES)], FRAME).axes
    (found,) = crosses(axes)
    assert list(found.get_xdata()) == [1.0, 10.0]
    tops = axes.transAxes.inverted().transform(found.get_transform().transform(found.get_xydata()))
    assert tops[:, 1] == pytest.approx([1.0, 1.0])
    assert found.get_color() == CONTESTANTS["L-BFGS"].colour
    assert not found.get_clip_on()


def test_infinite_means_do_not_move_the_axis() -> None:
    lost = blown_up(number=3)
    finite = Curve(lost.name, lost.x[:4], lost.mean[:4], lost.std[:4])
    assert limits(Panel("", (lost,)), FRAME) == limits(Panel("", (finite,)), FRAME)


def test_a_curve_has_a_gap_where_a_mean_is_infinite() -> None:
    curve = Curve("SGD", (1.0, 2.0, 3.0), (0.5, math.inf, 0.4), (0.1, math.nan, 0.1))
    (axes,) = plot_panels([Panel("", (curve,))], Frame("Epochs", "Loss")).axes
    assert np.isnan(drawn(axes, "SGD").get_ydata()).tolist() == [False, True, False]


def test_crosses_of_several_curves_do_not_hide_each_other() -> None:
    panel = Panel("", (blown_up("L-BFGS"), blown_up("SGD"), valley("Adam", 0.1)))
    (axes,) = plot_panels([panel], FRAME).axes
    one, other = crosses(axes)
    assert set(one.get_ydata()).isdisjoint(other.get_ydata())


def test_a_panel_of_nothing_but_blown_up_runs_can_be_drawn() -> None:
    (axes,) = plot_panels([Panel("", (blown_up(number=7),))], FRAME).axes
    assert len(crosses(axes)[0].get_xdata()) == 7


def test_a_line_whose_runs_blew_up_is_crosses_all_along_the_top() -> None:
    panel = Panel("", (blown_up(),), (Line("GG (paper)", math.inf, math.nan), LINES[2]))
    figure = plot_panels([panel], FRAME)
    _, found = crosses(figure.axes[0])
    assert found.get_color() == "#000000"
    assert min(found.get_xdata()) < 0.2 < 0.8 < max(found.get_xdata())
    assert "GG (paper)" in legend_of(figure)


def test_many_points_have_no_markers() -> None:
    x = tuple(float(k) for k in range(1, 101))
    panel = Panel("", (Curve("SGD", x, x, x), Curve("Adam", x[:10], x[:10], x[:10])))
    (axes,) = plot_panels([panel], Frame("Epochs", "Loss")).axes
    assert drawn(axes, "SGD").get_marker() == "None"
    assert drawn(axes, "Adam").get_marker() == "^"


def test_a_note_stands_inside_its_panel() -> None:
    figure = plot_panels([sensitivity()], FRAME)
    figure.draw_without_rendering()
    note = figure.axes[0].get_legend().get_title()
    assert note.get_text() == "5 seeds"
    inside, panel = note.get_window_extent(), figure.axes[0].bbox
    assert panel.x0 < inside.x0 < inside.x1 < panel.x1
    assert panel.y0 < inside.y0 < inside.y1 < panel.y1


# The frame.


def test_what_is_of_no_interest_leaves_through_the_top() -> None:
    low, high = limits(sensitivity(), FRAME)
    assert max(sensitivity().curves[0].mean) > 100.0
    assert high == 10.0
    assert 0.25 < low < 0.316


def test_a_panel_that_stays_below_the_highest_value_is_not_stretched() -> None:
    _, high = limits(Panel("", (), LINES), FRAME)
    assert 0.94 < high < 1.1


@pytest.mark.parametrize("y_scale", ["linear", "log"])
def test_means_that_are_all_the_same_have_a_view(y_scale: str) -> None:
    low, high = limits(Panel("", (), (Line("SGD", 0.3, 0.0),)), Frame("x", "y", y_scale=y_scale))
    assert low < 0.3 < high


def test_a_band_that_reaches_below_zero_does_not_pull_the_view_down() -> None:
    curve = Curve("SGD", (1.0, 2.0), (0.5, 0.4), (0.1, 3.0))
    figure = plot_panels([Panel("", (curve,))], Frame("Epochs", "Loss", highest=2.0))
    assert figure.axes[0].get_ylim()[0] > 0.2
    assert figure.axes[0].collections[0].get_paths()[0].vertices[:, 1].min() > 0.2


def test_losses_are_plain_numbers_and_rates_are_powers_of_ten() -> None:
    figure = plot_panels([sensitivity()], FRAME)
    assert shown_ticks(figure, "y") == ["0.3", "0.5", "1", "2", "3", "5", "10"]
    assert shown_ticks(figure, "x")[0] == r"$\mathdefault{10^{-5}}$"
    assert not figure.axes[0].yaxis.get_minorticklocs().size
    assert not figure.axes[0].xaxis.get_minorticklocs().size


def test_losses_that_are_close_together_have_ticks_too() -> None:
    curve = Curve("64 samples in all", (2.0, 10.0), (0.42, 0.36), (0.0, 0.0))
    figure = plot_panels([Panel("", (curve,))], Frame("Members", "Loss"))
    assert {"0.36", "0.38", "0.4", "0.42"} <= set(shown_ticks(figure, "y"))


def test_losses_over_many_powers_of_ten_have_few_ticks() -> None:
    lines = (Line("SGD", 0.06, 0.0), Line("Adam", 3e5, 0.0))
    figure = plot_panels([Panel("", (), lines)], Frame("x", "y"))
    assert 4 <= len(shown_ticks(figure, "y")) <= 8


def test_members_are_counted_in_whole_numbers() -> None:
    members = (2.0, 4.0, 6.0, 8.0, 10.0)
    curve = Curve("32 samples a member", members, (0.9, 0.8, 0.7, 0.6, 0.5), (0.0,) * 5)
    figure = plot_panels([Panel("", (curve,))] * 3, Frame("Members", "Loss"))
    assert shown_ticks(figure, "x") == ["2", "4", "6", "8", "10"]


# All panels together.


def test_there_is_one_legend_with_one_entry_a_name() -> None:
    extra = Panel("", (Curve("AutoGrouping", (0.1, 1.0), (0.4, 0.4), (0.0, 0.0)),), LINES[:1])
    found = legend_of(plot_panels([sensitivity(), sensitivity(), extra], FRAME))
    assert sorted(found) == sorted([*CONTESTANTS, "blew up"])


def test_the_legend_speaks_of_crosses_only_where_there_are_some() -> None:
    assert legend_of(plot_panels([Panel("", (valley("SGD", 0.1),))], FRAME)) == ["SGD"]


@pytest.mark.parametrize("panels", [1, 2, 3, 6])
def test_nothing_is_cut_off_and_no_text_lies_on_another(panels: int) -> None:
    figure = plot_panels([sensitivity()] * panels, FRAME)
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width
    boxes = [text.get_window_extent() for text in texts(figure)]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def texts(figure: Figure) -> list[Text]:
    """All that is written, but for ticks that are out of view."""
    out_of_view = {
        tick.label1
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not axis.get_view_interval()[0] <= tick.get_loc() <= axis.get_view_interval()[1]
    }
    found = figure.findobj(Text)
    return [t for t in found if t.get_text() and t.get_visible() and t not in out_of_view]


def test_rows_are_filled_evenly() -> None:
    figure = plot_panels([sensitivity()] * 4, FRAME)
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (2, 2)


def test_labels_stand_at_the_left_and_at_the_bottom() -> None:
    axes = plot_panels([sensitivity()] * 5, FRAME).axes
    assert [bool(each.get_ylabel()) for each in axes] == [True, False, False, True, False]
    assert [bool(each.get_xlabel()) for each in axes] == [False, False, True, True, True]


# Files.


def test_a_png_and_an_svg_are_written(tmp_path: Path) -> None:
    png, svg = save(plot_panels([Panel("", (), LINES)], FRAME), tmp_path / "sensitivity.default")
    assert [png.name, svg.name] == ["sensitivity.default.png", "sensitivity.default.svg"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_files_are_small(tmp_path: Path) -> None:
    for path in save(plot_panels([sensitivity()] * 3, FRAME), tmp_path / "figure"):
        assert path.stat().st_size < 300_000


def test_a_figure_is_the_same_bytes_when_it_is_saved_again(tmp_path: Path) -> None:
    figure = plot_panels([Panel("", (blown_up(),), LINES)], FRAME)
    first = [path.read_bytes() for path in save(figure, tmp_path / "first")]
    assert first == [path.read_bytes() for path in save(figure, tmp_path / "second")]


ELSEWHERE = """
import sys
from pathlib import Path
from gradgroup.experiments.figures import idea_info, plot_idea, save
assert "matplotlib" not in sys.modules, "the package is slow to import"
save(plot_idea(idea_info()), Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules, "pyplot keeps figures"
"""


def test_another_process_writes_the_same_bytes_without_pyplot(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "there")]
    subprocess.run(command, check=True, timeout=60)
    for path in save(plot_idea(idea_info()), tmp_path / "here"):
        there = path.with_stem("there")
        assert path.read_bytes() == there.read_bytes()


# The picture of the idea.


def spread(points: np.ndarray) -> float:
    """Ψ, the paper's eq. 3."""
    return float(((points - points.mean(axis=0)) ** 2).sum())


def test_circles_are_where_the_library_s_steps_lead() -> None:
    info = idea_info()
    np.testing.assert_array_equal(info.landed, info.thetas + info.steps[:, None] * info.grads)
    assert (info.steps < 0.0).all()


def test_arrows_are_the_gradients_of_the_function() -> None:
    info, h = idea_info(), 1e-6
    for points, grads in ((info.thetas, info.grads), (info.path, info.path_grads)):
        moved = [value(points + h * e) - value(points - h * e) for e in np.eye(2)]
        np.testing.assert_allclose(np.stack(moved, axis=-1) / (2 * h), grads, atol=1e-8)


def test_the_star_is_the_minimum() -> None:
    info = idea_info()
    assert np.abs(gradient(info.minimiser)).max() < 1e-15
    assert value(info.minimiser) < info.values.min()


def test_the_function_is_not_quadratic() -> None:
    star = idea_info().minimiser
    rises = [value(star + k * np.array([0.0, 1.0])) - value(star) for k in (1.0, -1.0, 2.0)]
    assert abs(rises[0] / rises[1] - 1.0) > 0.01
    assert rises[2] / rises[0] < 3.9


def test_the_jump_brings_the_group_together_near_the_minimum() -> None:
    info = idea_info()
    assert spread(info.landed) < spread(info.thetas) / 20
    away = np.linalg.norm(info.thetas - info.minimiser, axis=1)
    middle = np.linalg.norm(info.landed.mean(axis=0) - info.minimiser)
    assert middle < away.min() / 20
    assert (np.linalg.norm(info.landed - info.minimiser, axis=1) < away / 3).all()


def test_the_picture_shows_what_was_computed() -> None:
    info = idea_info()
    left, right = plot_idea(info).axes
    np.testing.assert_array_equal(drawn(left, "point").get_xydata(), info.path)
    np.testing.assert_array_equal(drawn(right, "point").get_xydata(), info.thetas)
    np.testing.assert_array_equal(drawn(right, "where it jumps to").get_xydata(), info.landed)
    assert left.get_aspect() == right.get_aspect() == 1.0


def test_everything_is_within_the_picture() -> None:
    info = idea_info()
    for points in (info.path, info.thetas, info.landed):
        assert ((info.x[0] < points[:, 0]) & (points[:, 0] < info.x[-1])).all()
        assert ((info.y[0] < points[:, 1]) & (points[:, 1] < info.y[-1])).all()
