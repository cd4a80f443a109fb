"""Which entries lie on the pages of an SQLite file whose tree of pages is broken?

The layout is that of https://www.sqlite.org/fileformat2.html, sections 1.5 to 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

TABLE_LEAF = 0x0D
USUAL_PAGE_BYTES = 4096
FILE_HEADER_BYTES = 100
MOST_BODY_BYTES = 64 * 2**20


class EntryBody(NamedTuple):
    """A row of the table `bodies`, as found: a page that is no longer in use may hold one too."""

    doc: int
    text: str


def entries_on_pages(path: Path) -> Iterator[EntryBody]:
    """Every row of two columns, its own number and a JSON object, in the order of the pages."""
    with path.open("rb") as file:
        pages = _Pages(file)
        number = 1
        while page := pages.read(number):
            start = FILE_HEADER_BYTES if number == 1 else 0
            if len(page) == pages.size and page[start] == TABLE_LEAF:
                for cell in range(int.from_bytes(page[start + 3 : start + 5], "big")):
                    at = start + 8 + 2 * cell
                    body = pages.body(page, int.from_bytes(page[at : at + 2], "big"))
                    if body is not None:
                        yield body
            number += 1


class _Pages:
    """The pages of one file, numbered from 1."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        size = int.from_bytes(file.read(18)[16:18], "big")
        known = size >= 512 and size & (size - 1) == 0
        self.size = size if known else USUAL_PAGE_BYTES

    def read(self, number: int) -> bytes:
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def body(self, page: bytes, at: int) -> EntryBody | None:
        """The row of the cell at `at`; None where it is another table's or cut off."""
        try:
            length, at = _varint(page, at)
            doc, at = _varint(page, at)
            if not 0 <= length <= MOST_BODY_BYTES:
                return None
            record = self._payload(page, at, length)
            head, next_type = _varint(record, 0)
            first, next_type = _varint(record, next_type)
            second, next_type = _varint(record, next_type)
        except IndexError:
            return None
        text = record[head:]
        # Serial type 0 stands for the row's number, an odd one from 13 for text of that length.
        whole = next_type == head and first == 0 and second == 13 + 2 * len(text)
        if len(record) != length or not whole or text[:1] != b"{":
            return None
        return EntryBody(doc, text.decode("utf-8", "replace"))

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        most = self.size - 35
        if length <= most:
            return page[at : at + length]
        least = (self.size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.size - 4)
        local = local if local <= most else least
        parts = [page[at : at + local]]
        following = page[at + local : at + local + 4]
        missing = length - local
        while missing > 0 and any(following):
            overflow = self.read(int.from_bytes(following, "big"))
            if len(overflow) < self.size:
                break
            following = overflow[:4]
            parts.append(overflow[4 : 4 + missing])
            missing -= len(parts[-1])
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, 64 bits with a sign, and the place after it. Raises IndexError
    past the end."""
    value = 0
    for step in range(8):
        byte = data[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    value = value << 8 | data[at + 8]
    return value - (value >> 63 << 64), at + 9
