"""Links code that names an object of the reference, or a page, in pages and in docstrings."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"(?:rrjax\.)?([A-Za-z]\w*(?:\.\w+)*)(?:\(.*\))?", re.DOTALL)


def _enclosing(node):
    """The signature of the function or class whose docstring a node is in."""
    while node is not None:
        if isinstance(node, addnodes.desc):
            return node[0]
        node = node.parent
    return None


def _classes(objects):
    """Classes by their last name, where it is the name of one class only."""
    found = {}
    for name, entry in objects.items():
        if entry.objtype in ("class", "exception") and not entry.aliased:
            found.setdefault(name.rpartition(".")[2], []).append(entry)
    return {name: entries[0] for name, entries in found.items() if len(entries) == 1}


def _link(app, doctree, docname):
    objects = app.env.get_domain("py").objects
    classes = _classes(objects)
    for node in list(doctree.findall(nodes.literal)):
        if isinstance(node.parent, nodes.reference | nodes.title | addnodes.desc_signature):
            continue
        page = re.sub(r"\.(md|ipynb)$", "", node.astext())
        if page in app.env.all_docs and page != node.astext():
            node.replace_self(make_refnode(app.builder, docname, page, "", node.deepcopy()))
            continue
        name = _NAME.fullmatch(node.astext())
        if not name:
            continue
        signature = _enclosing(node)
        scopes = ["rrjax"]
        if signature is not None and not re.search(rf"\b{name[1]}\b", signature.astext()):
            scopes.insert(0, signature.get("module") or "rrjax")
        elif signature is not None:
            continue  # a parameter, or the thing itself
        found = next(filter(None, (objects.get(f"{scope}.{name[1]}") for scope in scopes)), classes.get(name[1]))
        if found is not None:
            node.replace_self(make_refnode(app.builder, docname, found.docname, found.node_id, node.deepcopy()))


def setup(app):
    """Is called by Sphinx."""
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
