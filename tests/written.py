"""Files that tests write."""


def written(path, data):
    """The path, of a file that now holds a text, or bytes."""
    path.write_bytes(data) if isinstance(data, bytes) else path.write_text(data)
    return path
