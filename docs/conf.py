"""Builds the site, offline: `sphinx-build -W --keep-going -b html -c docs . docs/_build/html` in the repository.

The source folder is the repository itself: notebooks, tables of results and the changelog are pages where they are, and
links between files hold on the site as they do in the repository.
"""

import re
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

import rrjax  # noqa: E402

# Pages name modules by their public names, such as rrjax.metrics.
for _name in rrjax.__all__:
    if isinstance(getattr(rrjax, _name), types.ModuleType):
        sys.modules.setdefault(f"rrjax.{_name}", getattr(rrjax, _name))

project = "rrjax"
author = "The rrjax developers"
project_copyright = author
release = rrjax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "code_links", "mathml"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    "benchmarks/README.md",
    "benchmarks/results/**",
    "validation/README.md",
    "validation/results/*.md",
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = ["docs/_build", ".*", "dist", "rrjax", "tests"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    ("py:exc", r"[A-Z]\w+"),
    ("py:.*", r"(jax|numpy|xarray|pathlib|collections|typing|enum|abc)\..*"),
]
default_role = "code"
smartquotes_action = "D"
highlight_language = "text"

# Notebooks show their stored outputs; the tests run them.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # for tables in outputs, which CommonMark does not have
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# The docstrings state shapes, dtypes and units, which are more than types.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
add_module_names = False
napoleon_numpy_docstring = False
napoleon_attr_annotations = False
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "rrjax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


_COLON = "\ue000"


def _before_napoleon(app, what, name, thing, options, lines):
    # Napoleon would take the text before a colon for a type.
    del app, name, thing, options
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(":", _COLON)


def _after_napoleon(app, what, name, thing, options, lines):
    # In docstrings | is an absolute value or a condition, not a substitution of reStructuredText.
    del app, what, name, thing, options
    for place, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[place] = line.replace("|", r"\|").replace(_COLON, ":")


def _alias(app, what, name, thing, skip, options):
    # The docstring of a NamedTuple describes its fields already.
    del app, what, name, options
    return True if type(thing).__name__ == "_tuplegetter" else skip


def _folders(app, docname, source):
    # A link to a folder, which has no page, becomes plain text.
    del app, docname
    source[0] = re.sub(r"\[([^\]]*)\]\([\w./-]+/\)", r"\1", source[0])


def setup(app):
    """Is called by Sphinx."""
    app.connect("source-read", _folders)
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    app.connect("autodoc-skip-member", _alias)
