"""Foreign words in the page's Markdown: names, messages and titles of topics and files are shown as text."""

from __future__ import annotations

MOST_CHARACTERS = 300


def as_text(words: str, most: int = MOST_CHARACTERS) -> str:
    """The words as Markdown that shows them as they are, on one line and cut after `most` characters.

    The page renders HTML in its Markdown, so a name with an <iframe> would run. Every sign that is no letter, digit or
    space becomes a character reference, which Markdown and HTML both take for plain text; so does the first character,
    which could begin a list or a heading. What cannot be seen is replaced.
    """
    line = " ".join(words[: 4 * most].split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(
        _reference(c) if k == 0 else c if c.isalnum() or c == " " else _reference(c) for k, c in enumerate(line)
    )


def _reference(character: str) -> str:
    return f"&#{ord(character) if character.isprintable() else 0xFFFD};"
