"""Files that tests write."""

import numpy as np

from rrjax import io


def write_counts(name, counts, labels="abcdefgh"):
    """A table of labels and counts."""
    io.write_table(name, {"label": np.array(list(labels[: len(counts)])), "n": np.asarray(counts)})


def written(path, data):
    """The path, of a file that now holds a text, or bytes."""
    path.write_bytes(data) if isinstance(data, bytes) else path.write_text(data)
    return path
