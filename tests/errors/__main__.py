"""``python -m tests.errors``: make every error and write their sentences; the diff is what a reviewer reads.

``python -m tests.errors ROOM`` writes one room's part, and lists the raises that still have no row.
"""

import sys

from tests.errors import tables
from tests.errors.sites import ROOMS


def main(rooms: list[str]) -> None:
    """Write the parts of ``rooms``, or of all."""
    found = {room: tables.lines(room) if room in (rooms or ROOMS) else tables.written().get(room, []) for room in ROOMS}
    parts = ["\n".join([f"# {room}", "", *found[room], ""]) for room in ROOMS]
    tables.SENTENCES.write_text("\n".join(parts))
    for room in rooms or ROOMS:
        print(f"{room}: {len(found[room])} sentences", *tables.unlisted(room), sep="\n  without a row: ")


if __name__ == "__main__":
    main(sys.argv[1:])
