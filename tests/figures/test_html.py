"""Pages: parts that escape, drawings, colours that can be read."""

import re

import numpy as np
import pytest
from pages import check_page

from rrjax.figures.html import (
    DARK,
    LIGHT,
    STYLE,
    Markup,
    Tick,
    contents,
    details,
    figure,
    heading,
    joined,
    listing,
    pairs,
    paragraph,
    profile,
    prose,
    round_step,
    strip,
    table,
    ticks,
    write_page,
)

pytestmark = pytest.mark.once  # nothing here depends on the precision

NASTY = "<script>alert('1')</script> & \"quoted\" `code`"


def written(tmp_path, *parts, **named):
    return write_page(tmp_path / "page.html", "A page", parts, **named).read_text("utf-8")


def test_whatever_is_given_as_text_is_shown(tmp_path):
    part = [
        heading(NASTY, "here"),
        contents(NASTY, [("here", NASTY)]),
        paragraph(NASTY),
        listing([NASTY]),
        details(NASTY, paragraph(NASTY)),
        pairs({NASTY: NASTY}, NASTY),
        table([NASTY, "n"], [[NASTY, 1]], NASTY),
        figure("there", profile(np.array([0.5]), None, [Tick(0.5, NASTY)], NASTY), NASTY),
    ]
    source = written(tmp_path, *part, head=[paragraph(NASTY, kind="lead")], foot=NASTY)
    page = check_page(source)
    assert source.count("<script") == 0
    shown = NASTY.replace("`", "")  # the backticks of sentences are what is typed
    assert page.text.count(NASTY) + page.text.count(shown) == 16
    assert [each["aria-label"] for each in page.all("nav")] == [NASTY]
    assert NASTY in [each.get("aria-label") for each in page.all("div")]
    assert prose("run `a < b --c`") == "run <code>a &lt; b --c</code>"
    flag = '<code class="flag">--normal</code>'
    assert prose("--normal at ε = 2: 3 reports") == f"{flag} at ε\u00a0=\u00a02: 3\u00a0reports"
    assert joined("<", Markup("<b>"), 3) == "&lt;<b>3"


def test_a_page_that_fails_leaves_the_old_one(tmp_path):
    written(tmp_path, heading("old"))

    def stops():
        yield heading("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_page(tmp_path / "page.html", "A page", stops())
    assert "old" in (tmp_path / "page.html").read_text("utf-8")
    assert len(list(tmp_path.iterdir())) == 1


def test_numbers_stand_to_the_right():
    rows = [["1 a", "3.5 %", "−2", "12 words", ""], ["2 b", "0 – 1 %", "∞", "words", "1"]]
    cells = re.findall(r"<td( class=\"number\")?>", table("abcde", rows, "Numbers"))
    assert [bool(cell) for cell in cells] == 2 * [True, True, False, False]


@pytest.mark.parametrize(
    ("end", "expected"),
    [(0.33, [0, 0.1, 0.2, 0.3]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (4.2e-7, [0, 1e-7, 2e-7, 3e-7, 4e-7]), (0, [0])],
)
def test_ticks_are_round(end, expected):
    assert ticks(end) == pytest.approx(expected, rel=1e-9)
    assert len(ticks(end)) <= 6


def test_steps_are_the_smallest_that_are_few_enough():
    for span in [3, 7.0, 10, 99, 100, 101, 1000, 17_034, 1_484_706, 0.02]:
        for most in (3, 5, 40):
            step = round_step(span, most)
            assert span / step <= most
            digit = float(f"{step:e}".partition("e")[0])
            assert digit in (1, 2, 5)
            assert span / (step / (2.5 if digit == 5 else 2)) > most


def test_a_strip_is_drawn_to_scale():
    drawn = strip(0.1, 0.05, 0.2, 0.4)
    assert 'd="M125 5H500"' in drawn
    assert 'd="M250 0V10"' in drawn
    assert "span" not in strip(0.0, 0.0, 0.0, 0.4)  # no interval: a single end
    for value in (float("nan"), -0.3, 7.0):  # what is off the scale is at an end
        assert re.search(r'd="M(0|1000) 0V10"', strip(value, 0.0, 0.1, 0.4))
    assert "nan" not in strip(0.0, 0.0, 0.0, 0.0)


def test_a_profile_is_drawn_to_scale():
    drawn = profile(np.array([0.25, 0.5]), (np.array([0, 0.5]), np.array([0.5, 0.5])), [Tick(0.5, "x")], "words")
    end = 0.5 * 1.04
    strokes = re.search(r'class="mark" d="([^"]*)"', drawn).group(1)
    numbers = [[float(x) for x in re.findall(r"[\d.]+", part)] for part in strokes.split("M")[1:]]
    np.testing.assert_allclose(numbers[0], [60, 1000 * (1 - 0.25 / end), 440], atol=0.06)
    np.testing.assert_allclose(numbers[1], [560, 1000 * (1 - 0.5 / end), 940], atol=0.06)
    boxes = re.search(r'class="box" d="([^"]*)"', drawn).group(1)
    assert boxes.count("Z") == 1  # an interval of one number has no height
    assert 'style="left:50%">x<' in drawn
    assert 'role="img" aria-label="words"' in drawn
    # A million categories are not drawn, but nothing fails where all shares are zero.
    assert "nan" not in profile(np.zeros(3), None, [], "none")


def luminance(colour):
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    """As WCAG 2 has it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_told_apart(colours):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert set(colours) == set(LIGHT)
    for text in ("ink", "soft", "link"):
        for ground in ("paper", "card"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for drawn in ("mark", "span", "edge"):
        assert contrast(colours[drawn], colours["paper"]) >= 3, drawn
    assert contrast(colours["mark"], colours["span"]) >= 3
    for name, colour in colours.items():
        assert f"--{name}: {colour};" in STYLE
