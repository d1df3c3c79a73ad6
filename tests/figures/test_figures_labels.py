"""What stands at the axes of figures: labels as in the file, one style of numbers, in any script."""

import io
import warnings
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
pytest.importorskip("xarray", reason="studies need xarray")

from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, fontManager
from refusals import refused
from studies import iterates, study

from rrjax import figures
from rrjax.figures import files
from rrjax.figures.axes import in_words, per_cent
from rrjax.figures.panels import draw_histogram, draw_ranked
from rrjax.study import drawings

pytestmark = pytest.mark.once  # nothing here depends on the precision

ESTIMATES = {"MLE*": [0.6, 0.3, 0.1, 0.0], "InvN": [0.5, 0.2, 0.2, 0.1]}


def drawn(figure):
    figure.draw_without_rendering()
    return figure


def shown(axis):
    """What is written at the ticks within the limits."""
    low, high = sorted(axis.get_view_interval())
    ticks = [(tick.get_loc(), tick.label1.get_text()) for tick in axis.get_major_ticks()]
    return [text for place, text in ticks if low <= place <= high and text]


def histogram(labels, shares=None):
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    draw_histogram(axes, np.full(len(labels), 1 / len(labels)) if shares is None else shares, labels)
    drawn(figure)
    return axes


def of_users(labels):
    size = len(labels)
    dataset = study(distribution=["adult"], num_categories=[size], num_users=[100])
    counts = np.arange(1, size + 1)
    (drawing,) = drawings.of_users(dataset, "adult", counts, "adult", labels=np.asarray(labels))
    return drawn(drawing.draw()).axes[0]


@pytest.mark.long
def test_a_histogram_of_ages_has_ages_at_its_axis():
    axes = of_users(np.arange(17, 91))
    assert shown(axes.xaxis) == ["20", "30", "40", "50", "60", "70", "80", "90"]
    low, high = axes.get_xlim()
    assert 15 < low < 16.5
    assert 90.5 < high < 92
    np.testing.assert_array_equal(axes.patches[0].get_data().edges, np.arange(17, 92) - 0.5)  # each above its label


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.arange(2015, 2021), ["2015", "2016", "2017", "2018", "2019", "2020"]),  # years have no commas
        (np.arange(-3, 2), ["−3", "−2", "−1", "0", "1"]),
        (["7", "8", "9"], ["7", "8", "9"]),
        (["yes", "no", "$5"], ["yes", "no", r"\$5"]),
        (["3", "1", "2"], ["3", "1", "2"]),  # in the order of the file
        (["007", "008"], ["007", "008"]),
        (["2⁶⁴", str(2**64)], ["2⁶⁴", str(2**64)[:17] + "…"]),
    ],
)
def test_labels_are_those_of_the_file(labels, expected):
    assert shown(histogram(labels).xaxis) == expected


@pytest.mark.long
def test_text_is_shown_when_it_fits():
    countries = [f"country {number}" for number in range(42)]
    axes = of_users(countries)
    assert shown(axes.xaxis) == countries
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))
    assert axes.get_xlabel() == "category"
    assert axes.get_position().height > 0.4  # the labels take from the page, not from the panel
    many = histogram([f"page {number}" for number in range(1200)])
    texts = shown(many.xaxis)
    step = int(texts[1].split()[1])
    assert 3 < len(texts) <= 50
    assert texts[-1] == f"page {step * (len(texts) - 1)}"
    assert many.get_xlabel() == f"category (one in {step} is named)"


def test_labels_must_be_as_many_as_categories():
    with refused("labels"):
        histogram(["a", "b"], np.full(3, 1 / 3))


@pytest.mark.long
def test_a_grid_of_four_dimensions_has_a_figure_for_each_value_of_the_last():
    dataset = study(num_categories=[5, 50, 1000], zipf=[0.01, 1.3])
    found = drawings.of_study(dataset)[:4]
    assert [drawing.name for drawing in found] == [
        f"overview-{metric}-s-{exponent}" for metric in ("mse", "nll") for exponent in (0.01, 1.3)
    ]
    for drawing, exponent in zip(found[:2], (0.01, 1.3), strict=True):
        assert drawing.title == f"Overview: MSE, Zipf exponent s = {exponent}"
        assert "One figure for each of 2 Zipf exponents." in drawing.caption
        figure = drawing.draw()
        said = " ".join(f"{figure.get_suptitle()} {figure.legends[0].get_title().get_text()}".split())
        assert f"Zipf exponent s = {exponent}; 8 seeds" in said
        assert f"Zipf exponent s = {exponent} is one of 2 (0.01, 1.3)" in said
        assert "the dataset has them all" in said
        first = dataset["mse"].sel(estimator="mle_star", zipf=exponent).values
        assert any(set(line.get_ydata()) <= set(first.ravel()) for line in figure.axes[0].get_lines())


def test_the_figures_of_many_values_are_a_few_and_say_so():
    names = [f"a.{number}/b" for number in range(8)]
    dataset = study(
        distribution=names,
        num_categories=list(range(2, 11)),
        num_users=[10**power for power in range(1, 10)],
        epsilon=np.arange(1.0, 10.0),
    )
    found = drawings.of_study(dataset)[:6]
    assert [drawing.name for drawing in found][::5] == ["overview-mse-1-a-0-b", "overview-mse-6-a-7-b"]
    assert "One figure for each of 6 of 8 populations; the dataset has all." in found[0].caption


def note_of(figure):
    return figure.legends[0].get_title().get_text().replace("\n", " ")


@pytest.mark.long
def test_what_is_chosen_of_many_is_said():
    dataset = study(epsilon=np.arange(1.0, 11.0))
    assert "4 of 10 values of ε; 1 of 3 populations; the dataset has them all" in note_of(
        figures.by_categories(dataset, zipf=1.3)
    )
    many = study(distribution=list("abcdefgh"))
    assert "6 of 8 populations; the dataset has them all" in note_of(
        figures.against_users(many, num_categories=50, epsilon=1)
    )
    assert "5 of 8 populations" in note_of(figures.wins(many, estimator="empirical_bayes"))


def every_figure():
    small = partial(study, estimator=["mle_star", "inv_n", "empirical_bayes"], epsilon=[1.0, 4.0])
    dataset = small(num_categories=[100_000], num_users=[100, 1000, 10_000, 100_000, 1_000_000])
    narrow = small(num_users=[100, 200, 500], zipf=[1.3])
    shares = 1 / np.arange(1, 2001) ** 3
    yield figures.against_users(dataset, ["mse"], epsilon=4)
    yield figures.against_users(narrow, num_categories=50, epsilon=4)
    yield figures.by_categories(dataset, zipf=2.5, epsilons=[1, 1, 4, 4])  # as narrow as it gets
    yield figures.wins(dataset, estimator="empirical_bayes")
    yield figures.convergence(iterates())
    yield figures.estimate_figure(range(2000), {"x": shares / shares.sum()}, standard_error=1e-3)


def style_of(text):
    return "power" if text.startswith("$") else "share" if text.endswith("%") else "plain"


@pytest.mark.long
def test_an_axis_has_one_style_and_counts_are_written_out():
    for figure in map(drawn, every_figure()):
        scales = [(axes.xaxis, axes.get_xlabel()) for axes in figure.axes]
        for axis, label in [*scales, *((axes.yaxis, axes.get_ylabel()) for axes in figure.axes)]:
            texts = shown(axis)
            assert len({style_of(text) for text in texts}) <= 1, texts
            assert not any("e-0" in text or "e+0" in text for text in texts), texts
            if label.startswith(("users", "rank", "iteration")):
                assert texts == [in_words(float(number)) for number in map(_number, texts)], texts
        # Their labels do not run into each other.
        for axes in figure.axes:
            boxes = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
            boxes = sorted((box for box in boxes if box.width), key=lambda box: box.x0)
            assert not any(one.x1 > other.x0 for one, other in pairwise(boxes))


def _number(text):
    number, _, unit = text.replace(",", "").partition("\n")
    return float(number) * {"": 1, "million": 1e6, "billion": 1e9}[unit]


@pytest.mark.long
@pytest.mark.parametrize("positive", [1, 2, 3, 4])
def test_a_rank_is_never_zero(positive):
    theta = np.r_[np.ones(positive), np.zeros(9)] / positive
    ranks = drawn(figures.estimate_figure(range(len(theta)), {"x": theta}, standard_error=0.1)).axes[1]
    figure = Figure(layout="constrained")
    draw_ranked(figure.subplots(), theta[:positive])
    for axes in (ranks, drawn(figure).axes[0]):
        texts = shown(axes.xaxis)
        assert texts[0] == "1"
        assert all(text.isdigit() and text != "0" for text in texts)


def test_a_share_is_written_without_an_exponent():
    assert per_cent(1e-7) == "0.00001\N{NO-BREAK SPACE}%"
    assert per_cent(12.5) == "1,250\N{NO-BREAK SPACE}%"
    assert per_cent(0.1 + 0.2) == "30\N{NO-BREAK SPACE}%"
    assert per_cent(-0.05) == "−5\N{NO-BREAK SPACE}%"
    assert [in_words(value) for value in (0, 5e5, 2e6, float("inf"))] == ["0", "500,000", "2\nmillion", "∞"]


def test_names_and_titles_are_shown_not_obeyed():
    wrong = r"cost $\frac$"
    theta = ESTIMATES["MLE*"]
    drawn(figures.estimate_figure("abcd", {"x": theta}, standard_error=0.1, title=wrong))
    drawn(figures.profile_figure({wrong: lambda share: -100 * (share - 0.4) ** 2}, title=wrong))
    share = np.linspace(0, 1, 5)
    surface = SimpleNamespace(
        theta=np.stack([share, 1 - share], 1),
        log_likelihood=-10 * (share - 0.5) ** 2,
        inside=np.abs(share - 0.5) < 0.3,
        estimate=np.array([0.5, 0.5]),
    )
    drawn(figures.likelihood_figure(surface, [wrong, "b"], title=wrong))


def font(folder, name, characters):
    """A font with boxes for these characters."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(corner)
    pen.closePath()
    glyphs = [".notdef", *(f"u{ord(character):X}" for character in characters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap({ord(character): f"u{ord(character):X}" for character in characters})
    builder.setupGlyf(dict.fromkeys(glyphs, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (800, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    file = folder / f"{name}.ttf"
    builder.save(file)
    return FontEntry(fname=str(file), name=name, style="normal", variant="normal", weight=400, stretch="normal")


@pytest.fixture
def installed(monkeypatch):
    """Only the fonts that come with matplotlib, and those that a test adds; nothing has been warned of."""
    own = [entry for entry in fontManager.ttflist if "matplotlib" in entry.fname]

    def install(*entries):
        monkeypatch.setattr(fontManager, "ttflist", [*own, *entries])
        fontManager._findfont_cached.cache_clear()
        files._font_with.cache_clear()

    monkeypatch.setattr(files, "_warned", set())
    install()
    yield install
    monkeypatch.undo()
    fontManager._findfont_cached.cache_clear()
    files._font_with.cache_clear()


def test_a_font_that_has_the_characters_is_found(installed, tmp_path):
    installed(
        font(tmp_path, "Some CJK", "日本"), font(tmp_path, "Some Color Emoji", "🦄"), font(tmp_path, "Faces", "🦄")
    )
    figure = figures.estimate_figure(["日本", "🦄 and 日", "c", "d"], ESTIMATES, standard_error=0.1, title="本")
    figures.save(figure, tmp_path / "figure.png", dpi=40)
    one, two, latin, _ = figure.axes[0].get_yticklabels()
    assert one.get_fontfamily()[1:] == ["Some CJK"]
    assert sorted(two.get_fontfamily()[1:]) == ["Faces", "Some CJK"]
    assert len(latin.get_fontfamily()) == 1
    figure.savefig(io.BytesIO())  # a box would be a warning of matplotlib, and that an error


def test_what_no_font_has_is_said_once_and_by_name(installed, tmp_path):
    del installed
    save = partial(figures.save, path=tmp_path / "figure.png", dpi=40)
    with pytest.warns(
        UserWarning, match="these CJK characters: 日 本.* install a font such as Noto Sans CJK"
    ) as caught:
        save(figures.estimate_figure(["日本", "b", "c", "d"], ESTIMATES, standard_error=0.1))
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="these emoji characters: 🦄.* a font such as Noto Emoji") as caught:
        save(figures.estimate_figure(["日本", "🦄", "❤\ufe0f", "d"], ESTIMATES, standard_error=0.1))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figures.estimate_figure(["語", "🦄", "c", "d"], ESTIMATES, standard_error=0.1))


def test_a_font_that_cannot_be_read_is_none(installed, tmp_path):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    broken = FontEntry(fname=str(tmp_path / "broken.ttf"), name="Noto Sans CJK Broken", style="normal")
    installed(broken, font(tmp_path, "Some CJK", "日"))
    figure = figures.estimate_figure("日bcd", ESTIMATES, standard_error=0.1)
    figures.save(figure, tmp_path / "figure.png", dpi=40)
    assert figure.axes[0].get_yticklabels()[0].get_fontfamily()[1:] == ["Some CJK"]
