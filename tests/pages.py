"""What every page must be, read as a browser would: well formed, complete in itself, with words for what is drawn."""

import itertools
import re
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "path"}


class Page(HTMLParser):
    """Reads a page, and fails where it is not what a page must be."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.hidden = [], [], [], 0
        self.feed(source)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.tags.append((tag, dict(attributes), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID, tag
        self.tags.append((tag, dict(attributes), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> of nothing"
        assert self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        """All that is read, with single blanks."""
        return re.sub(r"\s+", " ", "".join(self.texts))

    def all(self, tag):
        return [attributes for name, attributes, _ in self.tags if name == tag]


def check_page(source):
    """Checks a page, and returns it."""
    page = Page(source)
    assert source.startswith('<!DOCTYPE html>\n<html lang="en">')
    for tag in ("title", "h1", "header", "main"):
        assert len(page.all(tag)) == 1, tag
    # Nothing runs, and nothing is loaded.
    assert {tag for tag, _, _ in page.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section", "div", "p"),
        *("h1", "h2", "h3", "ul", "li", "a", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "code"),
        *("figure", "figcaption", "img", "svg", "path", "span", "bdi", "strong", "details", "summary"),
    }
    for tag, attributes, _ in page.tags:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?:|url\(|@import|expression\(", source)
    places = [attributes["id"] for _, attributes, _ in page.tags if "id" in attributes]
    assert len(places) == len(set(places))
    assert {link["href"][1:] for link in page.all("a")} <= set(places)
    # Who listens hears what others see.
    levels = [int(tag[1]) for tag, _, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for tag, attributes, around in page.tags:
        if tag == "svg":
            assert attributes.get("aria-hidden") == "true"  # beside words, in its cell's row or its figure's name
            assert "td" in around or "figure" in around
        if attributes.get("role") in ("img", "group"):
            assert attributes["aria-label"].strip(), (tag, attributes)
        if tag == "img":
            assert attributes["alt"].strip()
        if tag == "th":
            assert attributes.get("scope") in ("row", "col")
        if "wide" in attributes.get("class", "").split():
            assert attributes.get("tabindex") == "0"
            assert attributes.get("role") == "group"
    return page
