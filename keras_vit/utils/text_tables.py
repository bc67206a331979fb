"""Tables as text: aligned columns for a terminal, and Markdown."""

from collections.abc import Collection, Sequence

from keras_vit.utils.safe_text import for_line, for_markdown


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int] | None = None) -> str:
    """Returns rows of text in columns of equal width, two spaces apart; cells by `for_line`.

    Args:
        rows: Cells of each row, all rows with as many.
        left: Numbers of the columns that are aligned at the left, negative ones from the
            end; the others are aligned at the right. By default all.
    """
    rows = [list(map(for_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    at_left = range(len(widths)) if left is None else {column % len(widths) for column in left}
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in at_left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of text as a Markdown table, by `for_markdown`; the first is the header."""
    header, *body = (list(map(for_markdown, row)) for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body))
