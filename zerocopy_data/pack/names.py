"""File names as text that can be stored and printed."""


def printable(name: str) -> str:
    """The name as UTF-8 text; bytes that are none stay visible as \\xNN, as in the stored keys."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def is_text(name: str) -> bool:
    """Whether the name is UTF-8."""
    return printable(name) == name
